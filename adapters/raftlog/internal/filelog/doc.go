// Package filelog keeps a peer's raft log on disk: its entries, its hard state, and how far it
// was compacted.
//
// # Files
//
// A log is a directory of segments, named <index of the first entry>-<number of the segment>.seg
// in hexadecimal digits. The last one takes what is appended; it is allocated as a whole, so
// that a sync has to write data only. The others are sealed: they are never written again.
// Nothing is deleted; [Log.Prunable] tells which segments nobody needs.
//
// A segment is a sequence of records (see format.go): first its header, which repeats the
// hard state and the compaction mark, and which has a checksum of the segment before; then
// batches, each what one [Log.Append] was given, and compaction marks. Entries that replace
// others are appended like all: of two with the same index the later one counts.
//
// # What is lost in a crash, and what is damage
//
// A crash loses, at most, what was appended after the last sync. What it leaves of that, a torn
// tail, is wiped when the log is opened. Every record tells which records were durable when it
// was written, and where it is; so a tail that has lost something durable is told from a torn
// one, in whatever pieces the disk has kept the latter. Anything else that does not fit
// is [ErrCorrupt]: nothing is repaired, for whoever forgets what he has promised breaks raft.
//
// Two kinds of damage cannot be told from a crash: that of the very last record, as long as
// nothing follows it, and the loss of the last segment as a whole.
package filelog
