// Package filelog stores the raft log of a peer on disk: its entries, its hard state, and the
// index through which it is compacted.
//
// # Files
//
// A log is a directory of segments. The name of a segment is <index of its first entry>-<number
// of the segment>.seg, in hexadecimal. Records are appended to the last segment, the active one.
// Its whole space is allocated when it is created, so that a sync writes only data. All other
// segments are sealed: they are never written again. The package does not delete files;
// [Log.Prunable] returns the segments that are not needed any more.
//
// A segment is a sequence of records (see format.go). The first record is the header, which
// repeats the hard state and the compaction mark, and contains a checksum of the previous segment.
// Batches and compaction marks follow. A batch contains what one call of [Log.Append] has written.
// An entry that replaces another entry is appended as well: of two entries with the same index,
// the later one is valid.
//
// # Crashes and damage
//
// A crash can only lose records that were appended after the last sync. It may leave parts of
// them, a torn tail, which is overwritten with zeros when the log is opened. Every record contains
// its own position, and the number of the last record that was durable when it was written. So a
// torn tail can be distinguished from the loss of a durable record, whatever parts of the tail the
// disk has kept. Everything else that is inconsistent is reported as [ErrCorrupt] and not
// repaired, because a peer that forgets what it has acknowledged violates the assumptions of Raft.
//
// Three kinds of damage cannot be distinguished from a crash: damage of the very last record if no
// record follows it, the loss of the whole last segment, and the truncation of the last segment
// between two records, as if it had been sealed.
package filelog
