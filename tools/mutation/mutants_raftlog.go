package main

// raftlogMutants break rules of the core of the Raft log, and of the state that peers derive from it.
var raftlogMutants = []mutant{
	{
		name: "raftlog/dedup-view", breaks: "a view shares the list of buckets with its table",
		file: "adapters/raftlog/internal/replica/ids.go",
		edits: []edit{
			{`slices.Clone(t.buckets)`, `t.buckets`},
		},
		tests: "./adapters/raftlog/internal/replica -run TestIDsView_DoesNotChangeWithTable",
	},
	{
		name: "raftlog/dedup-expire", breaks: "a bucket keeps its expired IDs until all of them have expired",
		file: "adapters/raftlog/internal/replica/ids.go",
		edits: []edit{
			{`t.buckets[expired] = b.suffixFrom(n)`, `t.len += n`},
		},
		tests: "./adapters/raftlog/internal/replica -run TestIDs_ExpireKeepsIDsAtLimit",
	},
	{
		name: "raftlog/dedup-fits", breaks: "an index that is too great for its bucket is truncated",
		file: "adapters/raftlog/internal/replica/ids_bucket.go",
		edits: []edit{
			{` && byteWidth(e.index-h.Base) <= h.IndexWidth`, ``},
		},
		tests: "./adapters/raftlog/internal/replica -run TestIDs_MatchMapAfterRandomCalls",
	},
	{
		name: "raftlog/turns", breaks: "all voters become candidates at the same time when the leader is silent",
		file: "adapters/raftlog/internal/core/succession.go",
		edits: []edit{
			{`d != 0 && d < c.self-leader`, `d != 0 && d < 0`},
		},
		tests: "./adapters/raftlog/internal/core -run TestSuccession_VotersBecomeCandidatesInTurn",
	},
	{
		name: "raftlog/notice-replaced", breaks: "a commit index that the next entries contain is sent on its own as well",
		file: "adapters/raftlog/internal/core/notices.go",
		edits: []edit{
			{`return d.message.GetTo() == m.GetTo() })`, `return false })`},
		},
		tests: "./adapters/raftlog/internal/core -run TestNotices_SendOneMessagePerPeerAndUpdate",
	},
	{
		name: "raftlog/notice-elections", breaks: "the other peers learn of a change of an election later",
		file: "adapters/raftlog/internal/core/ready.go",
		edits: []edit{
			{`if o.Kind != api.KindState {
		c.notices.sendAll(c)`, `if false {
		c.notices.sendAll(c)`},
		},
		tests: "./adapters/raftlog/internal/core -run TestNotices_AreNotDelayedIfCallerWaits",
	},
	{
		name: "raftlog/completions-await", breaks: "a result that was added before the loop waits for it does not wake the loop",
		file: "adapters/raftlog/completions.go",
		edits: []edit{
			{`(stored || applied) && c.pending.Load()`, `false`},
		},
		tests: "./adapters/raftlog -run TestCompletions_WakeOnlyWaitingLoop",
	},
	{
		name: "raftlog/applier-stopped", breaks: "a caller whose entry is committed is told that nothing was applied when the node stops",
		file: "adapters/raftlog/apply.go",
		edits: []edit{
			{`api.ErrUnknownOutcome, context.Cause(n.ctx)`, `api.ErrClosed, context.Cause(n.ctx)`},
		},
		tests: "./adapters/raftlog -run TestApplier_RepliesToAllCallersWhenItStops",
	},
	{
		name: "raftlog/skipped-applied", breaks: "the state machine applies an update that was skipped",
		file: "adapters/raftlog/internal/core/ready.go",
		edits: []edit{
			{"o.Kind != api.KindState || o.Skipped()", "o.Kind != api.KindState"},
		},
		tests: "./adapters/raftlog/internal/core -run ^TestGuard_FencesUpdateBehindEndOfLeadership$",
	},
	{
		name: "raftlog/batch-memory", breaks: "an entry begins with the data of an entry of an earlier batch",
		file: "adapters/raftlog/internal/core/propose.go",
		edits: []edit{
			{"e.Data = e.Data[:0]", ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestPropose_ReusedMemoryContainsNoEarlierData",
	},
	{
		name: "raftlog/decode-reject", breaks: "the rejection of an append is decoded as its confirmation",
		file: "adapters/raftlog/internal/core/decode.go",
		edits: []edit{
			{`m.reject, m.Reject = value != 0, &m.reject`, `m.reject, m.Reject = false, &m.reject`},
		},
		tests: "./adapters/raftlog/internal/core -run TestDecodeMessage",
	},
	{
		name: "raftlog/vote-response", breaks: "every answer counts as a vote that may be written on a full disk",
		file: "adapters/raftlog/internal/core/ready.go",
		edits: []edit{
			{"f.isVote = r.GetType() != raftpb.MsgAppResp", "f.isVote = true"},
		},
		tests: "./adapters/raftlog/internal/core -run TestTakeVotes_SendsVotesDespiteFullDisk",
	},
	{
		name: "raftlog/hard-state", breaks: "a vote that was written ahead is written twice",
		file: "adapters/raftlog/internal/core/space.go",
		edits: []edit{
			{`		w.HardState = nil
`, ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestTakeVotes_SendsVotesDespiteFullDisk",
	},
	{
		name: "raftlog/commit-ahead", breaks: "a vote written ahead of its entries has their commit index",
		file: "adapters/raftlog/internal/core/space.go",
		edits: []edit{
			{"Commit: new(uint64(0))", "Commit: new(w.HardState.GetCommit())"},
		},
		tests: "./adapters/raftlog/internal/core -run TestTakeVotes_SendsVotesDespiteFullDisk",
	},
	{
		name: "raftlog/wrote", breaks: "written entries count against the free space permanently",
		file: "adapters/raftlog/internal/core/ready.go",
		edits: []edit{
			{`		c.space.removeUnwritten(w.Entries)
`, ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestSpace_LeaderRejectsUpdatesOnFullDisk",
	},
	{
		name: "raftlog/majority-full", breaks: "a majority without space is not noticed",
		file: "adapters/raftlog/internal/core/space.go",
		edits: []edit{
			{"len(ids) >= len(voters)-len(voters)/2", "len(ids) > len(voters)-len(voters)/2"},
		},
		tests: "./adapters/raftlog/internal/core -run TestSpace_LeaderRejectsRequestsIfMajorityIsFull",
	},
	{
		name: "raftlog/appends-full", breaks: "a peer without space accepts entries",
		file: "adapters/raftlog/internal/core/receive.go",
		edits: []edit{
			{"(c.backlog.dropsAppends(c) || c.space.full)", "c.backlog.dropsAppends(c)"},
		},
		tests: "./adapters/raftlog/internal/core -run TestSpace_LeaderRejectsRequestsIfMajorityIsFull",
	},
	{
		name: "raftlog/skips", breaks: "skipped entries are never forgotten",
		file: "adapters/raftlog/internal/core/ready.go",
		edits: []edit{
			{"c.replica.DropSkips(w.Compact)", ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestSkips_AreDroppedWithCompactedEntries",
	},
	{
		name: "raftlog/change-written", breaks: "a change of the peers that was written is reported as not begun",
		file: "adapters/raftlog/internal/core/change.go",
		edits: []edit{
			{"p == nil || p.written || !slices.Equal", "p == nil || !slices.Equal"},
		},
		tests: "./adapters/raftlog/internal/core -run TestAbandonChange",
	},
}
