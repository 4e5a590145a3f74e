// Package filelog stores the Raft log of a peer on disk: the entries, the hard state, and the index up
// to which the log is compacted.
//
// # Files
//
// A log is a directory of segments. The name of a segment is <index of its first entry>-<number of the
// segment>.seg, in hexadecimal. Records are appended to the last segment, which is the active one. The
// log allocates the whole space of a segment when it creates the segment, so that a sync writes only
// data. All other segments are sealed: the log never writes to them again. The package does not delete
// files; [Log.Prunable] returns the segments that are not needed any more.
//
// A segment is a sequence of records (see format.go). The first record is the header, which repeats the
// hard state and the compaction mark, and contains a checksum of the previous segment. Batches and
// compaction marks follow. A batch contains what one call of [Log.Append] has written. An entry that
// replaces another entry is appended as well: of two entries with the same index, the later one is
// valid.
//
// # Crashes and damage
//
// A crash can only lose records that were appended after the last sync. It may leave parts of these
// records, which form a torn tail. Open overwrites a torn tail with zeros. Every record contains its
// own position, and the number of the last record that was durable when it was written. So Open can
// distinguish a torn tail from the loss of a durable record, whatever parts of the tail the disk has
// kept. Open reports every other inconsistency as [ErrCorrupt] and does not repair it, because a peer
// that forgets what it has acknowledged violates the assumptions of Raft.
//
// Three kinds of damage cannot be distinguished from a crash: damage of the very last record if no
// record follows it, the loss of the whole last segment, and the truncation of the last segment between
// two records, as if the log had sealed the segment.
package filelog
