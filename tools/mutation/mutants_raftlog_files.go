package main

// raftlogFileMutants break rules of the files of the Raft log, and of snapshots that are received.
var raftlogFileMutants = []mutant{
	{
		name: "raftlog/full-at-start", breaks: "a disk that is full at the start is not reported as that",
		file: "adapters/raftlog/node.go",
		edits: []edit{
			{"if disk.IsFull(err) && !errors.Is(err, api.ErrNoSpace) {", "if false {"},
		},
		tests: "./adapters/raftlog -cpu 1 -run ^TestFullDisk_PeerStartsWhenThereIsSpace$",
	},
	{
		name: "raftlog/dedup-order", breaks: "buckets of a snapshot may overlap",
		file: "adapters/raftlog/internal/replica/ids_codec.go",
		edits: []edit{
			{`last >= 0 && compareID`, `last >= 1<<30 && compareID`},
		},
		tests: "./adapters/raftlog/internal/replica -run TestReadIDs_RejectsInvalidContent",
	},
	{
		name: "raftlog/dedup-form", breaks: "a bucket of a snapshot may begin at another ID or index",
		file: "adapters/raftlog/internal/replica/ids_codec.go",
		edits: []edit{
			{`packed.bucketHeader != b.bucketHeader || `, ``},
		},
		tests: "./adapters/raftlog/internal/replica -run TestReadIDs_RejectsInvalidContent",
	},
	{
		name: "raftlog/snapshot-sender", breaks: "a peer that is not the leader can send a snapshot",
		file: "adapters/raftlog/internal/core/offer.go",
		edits: []edit{
			{"case o.sender != o.lead || o.term != o.ownTerm:", "case o.term != o.ownTerm:"},
		},
		tests: "./adapters/raftlog/internal/core -run TestSnapshotOffer_UnneededDataIsRejected",
	},
	{
		name: "raftlog/snapshot-term", breaks: "a leader of another term can send a snapshot",
		file: "adapters/raftlog/internal/core/offer.go",
		edits: []edit{
			{"case o.sender != o.lead || o.term != o.ownTerm:", "case o.sender != o.lead:"},
		},
		tests: "./adapters/raftlog/internal/core -run TestSnapshotOffer_UnneededDataIsRejected",
	},
	{
		name: "raftlog/snapshot-header", breaks: "a snapshot is written to disk before its header is checked",
		file: "adapters/raftlog/snapshots.go",
		edits: []edit{
			{"if rejected = c.CheckSnapshot(from, in.Header, in.Size); rejected != nil {", "if false {"},
		},
		tests: "./adapters/raftlog -run TestSnapshot_IsRejectedUnlessAsAnnounced",
	},
	{
		name: "raftlog/compact-link", breaks: "another user can make a peer read any file by a link",
		file: "adapters/raftlog/internal/disk/owner_unix.go",
		edits: []edit{
			{" | syscall.O_NOFOLLOW", ""},
		},
		tests: "./adapters/raftlog/internal/disk -run TestOpenPrivate_RejectsSymlink",
	},
	{
		name: "raftlog/compact-copy", breaks: "a peer copies a file that is not a snapshot",
		file: "adapters/raftlog/compactfile.go",
		edits: []edit{
			{"if meta, err = snapshot.Verify(f); err == nil {", "if false {"},
		},
		tests: "./adapters/raftlog -run TestCompactFile_UnreadableFileIsRenamed",
	},
	{
		name: "raftlog/snapshot-space", breaks: "a snapshot is received for which the disk has no space",
		file: "adapters/raftlog/snapshots.go",
		edits: []edit{
			{"if err = f.Allocate(size); err == nil {", "if true {"},
		},
		tests: "./adapters/raftlog -run TestCopyTo_RecognizesFullDisk",
	},
	{
		name: "raftlog/snapshot-one", breaks: "several snapshots are received at the same time",
		file: "adapters/raftlog/snapshots.go",
		edits: []edit{
			{"if other = n.receiving.Load(); other == nil {", "if other = n.receiving.Load(); other == nil || true {\n\t\t\t\tother = nil"},
		},
		tests: "./adapters/raftlog -run TestSnapshot_OnlyOneIsReceivedAtATime",
	},
	{
		name: "raftlog/snapshot-replaced", breaks: "the snapshot that a newer one for the peer replaces is not cancelled",
		file: "adapters/raftlog/snapshots.go",
		edits: []edit{
			{"\t\t(*earlier)()\n", ""},
		},
		tests: "./adapters/raftlog -run TestSending_NewerSnapshotCancelsOlder",
	},
	{
		name: "raftlog/state-format", breaks: "a snapshot of another format is decoded",
		file: "adapters/raftlog/internal/replica/codec.go",
		edits: []edit{
			{"string(head[:len(magic)]) != magic", "false"},
		},
		tests: "./adapters/raftlog/internal/replica -run TestRead_RejectsTruncatedAndForeignState",
	},
	{
		name: "raftlog/record-format", breaks: "a record of another format is decoded",
		file: "adapters/raftlog/internal/replica/op.go",
		edits: []edit{
			{"d.Err == nil && (o.Do < Join || o.Do > Window)", "false"},
		},
		tests: "./adapters/raftlog/internal/replica -run TestRecords_ErrorNamesOtherVersion",
	},
	{
		name: "raftlog/kept-room", breaks: "no room is kept for votes",
		file: "adapters/raftlog/internal/filelog/segment.go",
		edits: []edit{
			{"refused := end > limit-reservedSize(limit)", "refused := end > limit"},
		},
		tests: "./adapters/raftlog/internal/filelog -run OnFullDisk",
	},
	{
		name: "raftlog/peers-sum", breaks: "a damaged list of peers is used",
		file: "adapters/raftlog/internal/identity/files.go",
		edits: []edit{
			{"c.Sum == nil || *c.Sum != checksum(c.Peers)", "c.Sum == nil"},
		},
		tests: "./adapters/raftlog/internal/identity -run TestReadPeers_DetectsDamagedFile",
	},
	{
		name: "raftlog/truncated-file", breaks: "a log whose newest file was cut off within a record is opened",
		file: "adapters/raftlog/internal/filelog/reader.go",
		edits: []edit{
			{"if ok && at+headSize+int64(head.length) > r.size {", "if false && ok {"},
		},
		tests: "./adapters/raftlog/internal/filelog -run ^TestOpen_DetectsTruncatedFile$",
	},
	{
		name: "raftlog/truncated-head", breaks: "a log whose newest file was cut off within the head of a record is opened",
		file: "adapters/raftlog/internal/filelog/reader.go",
		edits: []edit{
			{"if dirty > r.at.end && r.size-r.at.end < headSize {", "if false {"},
		},
		tests: "./adapters/raftlog/internal/filelog -run ^TestOpen_DetectsTruncatedFile$",
	},
}
