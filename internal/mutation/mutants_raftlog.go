package main

// raftlogMutants break rules of the Raft log.
var raftlogMutants = []mutant{
	{
		name: "raftlog/dedup-view", breaks: "a view shares the list of buckets with its table",
		file: "adapters/raftlog/internal/dedup/table.go",
		edits: []edit{
			{`slices.Clone(t.buckets)`, `t.buckets`},
		},
		tests: "./adapters/raftlog/internal/dedup -run TestView_Immutable",
	},
	{
		name: "raftlog/dedup-expire", breaks: "a bucket keeps its expired IDs until all of them have expired",
		file: "adapters/raftlog/internal/dedup/table.go",
		edits: []edit{
			{`t.buckets[expired] = b.from(n)`, `t.len += n`},
		},
		tests: "./adapters/raftlog/internal/dedup -run TestExpire_Limits",
	},
	{
		name: "raftlog/dedup-fits", breaks: "an index that is too great for its bucket is truncated",
		file: "adapters/raftlog/internal/dedup/bucket.go",
		edits: []edit{
			{` && width(e.index-h.Base) <= h.IndexWidth`, ``},
		},
		tests: "./adapters/raftlog/internal/dedup -run TestTable_EqualsModel",
	},
	{
		name: "raftlog/dedup-order", breaks: "buckets of a snapshot may overlap",
		file: "adapters/raftlog/internal/dedup/codec.go",
		edits: []edit{
			{`last >= 0 && compareID`, `last >= 1<<30 && compareID`},
		},
		tests: "./adapters/raftlog/internal/dedup -run TestRead_InvalidContent",
	},
	{
		name: "raftlog/dedup-form", breaks: "a bucket of a snapshot may begin at another ID or index",
		file: "adapters/raftlog/internal/dedup/codec.go",
		edits: []edit{
			{`packed.header != b.header || `, ``},
		},
		tests: "./adapters/raftlog/internal/dedup -run TestRead_InvalidContent",
	},
	{
		name: "raftlog/vote-response", breaks: "every answer counts as a vote that may be written on a full disk",
		file: "adapters/raftlog/internal/core/ready.go",
		edits: []edit{
			{"f.isVote = r.GetType() != raftpb.MsgAppResp", "f.isVote = true"},
		},
		tests: "./adapters/raftlog/internal/core -run TestTakeVotes",
	},
	{
		name: "raftlog/hard-state", breaks: "a vote that was written ahead is written twice",
		file: "adapters/raftlog/internal/core/space.go",
		edits: []edit{
			{`		w.HardState = nil
`, ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestTakeVotes",
	},
	{
		name: "raftlog/commit-ahead", breaks: "a vote written ahead of its entries has their commit index",
		file: "adapters/raftlog/internal/core/space.go",
		edits: []edit{
			{"Commit: new(uint64(0))", "Commit: new(w.HardState.GetCommit())"},
		},
		tests: "./adapters/raftlog/internal/core -run TestTakeVotes",
	},
	{
		name: "raftlog/wrote", breaks: "written entries count against the free space permanently",
		file: "adapters/raftlog/internal/core/ready.go",
		edits: []edit{
			{`		c.space.removeUnwritten(w.Entries)
`, ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestSpace_Updates",
	},
	{
		name: "raftlog/majority-full", breaks: "a majority without space is not noticed",
		file: "adapters/raftlog/internal/core/space.go",
		edits: []edit{
			{"len(ids) >= len(voters)-len(voters)/2", "len(ids) > len(voters)-len(voters)/2"},
		},
		tests: "./adapters/raftlog/internal/core -run TestSpace_Majority",
	},
	{
		name: "raftlog/appends-full", breaks: "a peer without space accepts entries",
		file: "adapters/raftlog/internal/core/receive.go",
		edits: []edit{
			{"(c.backlog.dropsAppends(c) || c.space.full)", "c.backlog.dropsAppends(c)"},
		},
		tests: "./adapters/raftlog/internal/core -run TestSpace_Majority",
	},
	{
		name: "raftlog/snapshot-sender", breaks: "a peer that is not the leader can send a snapshot",
		file: "adapters/raftlog/internal/core/offer.go",
		edits: []edit{
			{"case o.sender != o.lead || o.term != o.ownTerm:", "case o.term != o.ownTerm:"},
		},
		tests: "./adapters/raftlog/internal/core -run TestSnapshotOffer",
	},
	{
		name: "raftlog/snapshot-term", breaks: "a leader of another term can send a snapshot",
		file: "adapters/raftlog/internal/core/offer.go",
		edits: []edit{
			{"case o.sender != o.lead || o.term != o.ownTerm:", "case o.sender != o.lead:"},
		},
		tests: "./adapters/raftlog/internal/core -run TestSnapshotOffer",
	},
	{
		name: "raftlog/snapshot-header", breaks: "a snapshot is written to disk before its header is checked",
		file: "adapters/raftlog/snapshots.go",
		edits: []edit{
			{"if rejected = c.CheckSnapshot(from, in.Header, in.Size); rejected != nil {", "if false {"},
		},
		tests: "./adapters/raftlog -run TestSnapshot_OtherThanAnnounced",
	},
	{
		name: "raftlog/snapshot-space", breaks: "a snapshot is received for which the disk has no space",
		file: "adapters/raftlog/snapshots.go",
		edits: []edit{
			{"if err = f.Allocate(size); err != nil {", "if false {"},
		},
		tests: "./adapters/raftlog -run TestSnapshot_OtherThanAnnounced",
	},
	{
		name: "raftlog/snapshot-one", breaks: "several snapshots are received at the same time",
		file: "adapters/raftlog/snapshots.go",
		edits: []edit{
			{"if other = n.receiving.Load(); other == nil {", "if other = n.receiving.Load(); other == nil || true {\n\t\t\t\tother = nil"},
		},
		tests: "./adapters/raftlog -run TestSnapshot_OneAtATime",
	},
	{
		name: "raftlog/client-memory", breaks: "the requests of one client occupy any amount of memory",
		file: "adapters/raftlog/internal/rpc/limits.go",
		edits: []edit{
			{"{more.memory, sum.memory, limit.memory,", "{0, sum.memory, limit.memory,"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestCheckClient",
	},
	{
		name: "raftlog/client-address", breaks: "one address can use up the limits of all clients",
		file: "adapters/raftlog/internal/rpc/limits.go",
		edits: []edit{
			{"if err := address.checkIncrease(more, maxAddressLoad, \"one address\"); err != nil {", "if err := address.checkIncrease(load{}, maxAddressLoad, \"one address\"); err != nil {"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestCheckClient",
	},
	{
		name: "raftlog/client-share", breaks: "clients that use up the limits prevent the updates of others",
		file: "adapters/raftlog/internal/rpc/limits.go",
		edits: []edit{
			{"if more.calls > 0 && own.calls < ownCalls ||", "if false ||"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestCheckClient",
	},
	{
		name: "raftlog/client-release", breaks: "what a connection has occupied remains occupied",
		file: "adapters/raftlog/internal/rpc/limits.go",
		edits: []edit{
			{"	c.change(load{}.sub(c.own))", "	c.change(load{})"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestUsage",
	},
	{
		name: "raftlog/client-replies", breaks: "replies that are not read occupy any amount of memory",
		file: "adapters/raftlog/internal/rpc/server.go",
		edits: []edit{
			{"len(body) > freeReply {", "false {"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestServer_LimitsReplies",
	},
	{
		name: "raftlog/client-connections", breaks: "one client opens any number of connections",
		file: "adapters/raftlog/internal/rpc/server.go",
		edits: []edit{
			{"load{conns: 1})", "load{})"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestServer_LimitsConnections",
	},
	{
		name: "raftlog/frame-stall", breaks: "a connection waits without a limit for the rest of a frame",
		file: "adapters/raftlog/internal/link/conn.go",
		edits: []edit{
			{"case c.inPart && c.limits.Stall > 0:", "case false:"},
		},
		tests: "./adapters/raftlog/internal/link -run TestConn_LimitFrames",
	},
	{
		name: "raftlog/frame-memory", breaks: "memory for a frame is not reserved",
		file: "adapters/raftlog/internal/link/conn.go",
		edits: []edit{
			{"case reserves && got == skippedHead:", "case false:"},
		},
		tests: "./adapters/raftlog/internal/link -run TestConn_LimitFrames",
	},
	{
		name: "raftlog/fenced", breaks: "an update of an ended leadership is written",
		file: "adapters/raftlog/internal/core/propose.go",
		edits: []edit{
			{"case !known && certainlyFenced(c, q.Guard):", "case false:"},
		},
		tests: "./adapters/raftlog/internal/core -run TestGuard_Checked",
	},
	{
		name: "raftlog/token", breaks: "an update is rejected before its leadership is applied",
		file: "adapters/raftlog/internal/core/propose.go",
		edits: []edit{
			{"g.Token <= c.replica.Index && !c.replica.GuardHolds(g)", "!c.replica.GuardHolds(g)"},
		},
		tests: "./adapters/raftlog/internal/core -run TestGuard_Checked",
	},
	{
		name: "raftlog/holds", breaks: "an update of an ended leadership is applied",
		file: "adapters/raftlog/internal/replica/replica.go",
		edits: []edit{
			{"case !s.GuardHolds(o.Guard):", "case false:"},
		},
		tests: "./adapters/raftlog/internal/core -run TestGuard_Checked",
	},
	{
		name: "raftlog/skips", breaks: "skipped entries are never forgotten",
		file: "adapters/raftlog/internal/core/ready.go",
		edits: []edit{
			{"c.replica.DropSkips(w.Compact)", ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestSkips_Dropped",
	},
	{
		name: "raftlog/candidates-changed", breaks: "a change of an election does not update the candidates of this peer",
		file: "adapters/raftlog/internal/core/ready.go",
		edits: []edit{
			{"\t\tc.candidates.markElection(c, election)", "\t\t_ = election"},
		},
		tests: "./adapters/raftlog/internal/core -run TestCandidates_EarlierProcess",
	},
	{
		name: "raftlog/candidates-found", breaks: "the candidates of an earlier process remain",
		file: "adapters/raftlog/internal/core/core.go",
		edits: []edit{
			{`	c.candidates.markAll(c)
`, ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestCandidates_EarlierProcess",
	},
	{
		name: "raftlog/snapshot-candidates", breaks: "a snapshot does not update the candidates of this peer",
		file: "adapters/raftlog/internal/core/ready.go",
		edits: []edit{
			{`		c.candidates.markAll(c)
`, ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestCandidates_Snapshot",
	},
	{
		name: "raftlog/change-written", breaks: "a change of the peers that was written is reported as not begun",
		file: "adapters/raftlog/internal/core/change.go",
		edits: []edit{
			{"p == nil || p.written || !slices.Equal", "p == nil || !slices.Equal"},
		},
		tests: "./adapters/raftlog/internal/core -run TestAbandonChange",
	},
	{
		name: "raftlog/elections-count", breaks: "the count of candidates of a name only grows",
		file: "adapters/raftlog/internal/replica/elections.go",
		edits: []edit{
			{"es.countCandidates(name, es.byName[name], -1)", ""},
		},
		tests: "./adapters/raftlog/internal/replica -run TestElections_Indexed",
	},
	{
		name: "raftlog/forget-lease", breaks: "an election is forgotten while its leader may have a lease",
		file: "adapters/raftlog/internal/core/expiry.go",
		edits: []edit{
			{"c.cfg.Disabled.Has(replica.CheckForget) || x.mayRestart(c, election)", "true"},
		},
		tests: "./adapters/raftlog/internal/core -run TestForget_WaitsForLeases",
	},
	{
		name: "raftlog/forget-ended", breaks: "the leader keeps the times of forgotten elections",
		file: "adapters/raftlog/internal/core/expiry.go",
		edits: []edit{
			{`		if !c.replica.Elections.Get(election).Ended {
			delete(x.ended, election)
		}
`, "\t\t_ = election\n"},
		},
		tests: "./adapters/raftlog/internal/core -run TestForget_AfterWindow",
	},
	{
		name: "raftlog/forget-window", breaks: "an election is forgotten before the window has passed",
		file: "adapters/raftlog/internal/core/expiry.go",
		edits: []edit{
			{"before := c.entryTime().Add(-c.replica.Window)", "before := c.entryTime().Add(maxClockLag + 1)"},
		},
		tests: "./adapters/raftlog/internal/core -run TestForget_AfterWindow",
	},
	{
		name: "raftlog/forget-late-end", breaks: "a delayed request ends an election that was forgotten and restarted",
		file: "adapters/raftlog/internal/replica/elections.go",
		edits: []edit{
			{"case op.Through < es.forgotten:", "case false:"},
		},
		tests: "./adapters/raftlog/internal/core -run TestForget_WaitsForLeases",
	},
	{
		name: "raftlog/forget-later-end", breaks: "a forgotten entry removes an election that was ended again",
		file: "adapters/raftlog/internal/replica/elections.go",
		edits: []edit{
			{"case e.EndedAt == t.index:", "case e.Ended:"},
		},
		tests: "./adapters/raftlog/internal/replica -run TestElections_Forget$",
	},
	{
		name: "raftlog/forget-snapshot", breaks: "requests that are too late are accepted after a snapshot",
		file: "adapters/raftlog/internal/replica/codec.go",
		edits: []edit{
			{`if es.forgotten = d.Uint64("index"); es.forgotten > index {`, `if forgotten := d.Uint64("index"); forgotten > index {`},
		},
		tests: "./adapters/raftlog/internal/replica -run TestSnapshot_RoundTrip",
	},
	{
		name: "raftlog/state-format", breaks: "a snapshot of another format is decoded",
		file: "adapters/raftlog/internal/replica/codec.go",
		edits: []edit{
			{"string(head[:len(magic)]) != magic", "false"},
		},
		tests: "./adapters/raftlog/internal/replica -run TestSnapshot_Damaged",
	},
	{
		name: "raftlog/record-format", breaks: "a record of another format is decoded",
		file: "adapters/raftlog/internal/entry/op.go",
		edits: []edit{
			{"d.Err == nil && (o.Do < Join || o.Do > Window)", "false"},
		},
		tests: "./adapters/raftlog/internal/entry -run TestRecords_OfAnotherVersion",
	},
	{
		name: "raftlog/end-twice", breaks: "ending an ended election writes a request that can be applied after it was forgotten",
		file: "adapters/raftlog/election.go",
		edits: []edit{
			{"case err == nil && over && op.Do == entry.End:", "case false && over:"},
		},
		tests: "./adapters/raftlog -run TestDeleteElection_Forgotten",
	},
	{
		name: "raftlog/kept-room", breaks: "no room is kept for votes",
		file: "adapters/raftlog/internal/filelog/segment.go",
		edits: []edit{
			{"refused := end > limit-reservedSize(limit)", "refused := end > limit"},
		},
		tests: "./adapters/raftlog/internal/filelog -run TestFullDisk",
	},
	{
		name: "raftlog/rpc-sent", breaks: "a request that may have been sent counts as not sent",
		file: "adapters/raftlog/internal/rpc/conn.go",
		edits: []edit{
			{`		o.queue[n].taken = true
`, ""},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestCaller_LostConnection",
	},
	{
		name: "raftlog/rpc-unsent", breaks: "a request that was certainly not sent may have been applied",
		file: "adapters/raftlog/internal/rpc/caller.go",
		edits: []edit{
			{"k.changesState() && c.out.isTaken(&k.request)", "k.changesState()"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestCaller_RequestsThatWereNotSent",
	},
	{
		name: "raftlog/rpc-lost-client", breaks: "a stream of a lost client does not end",
		file: "adapters/raftlog/internal/rpc/serverstream.go",
		edits: []edit{
			{"conn.SetTimeouts(streamSilence, 0)", "conn.SetTimeouts(0, 0)"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestServer_LostClient",
	},
	{
		name: "raftlog/rpc-slow-client", breaks: "a stream of a slow client ends",
		file: "adapters/raftlog/internal/rpc/serverstream.go",
		edits: []edit{
			{"conn.SetTimeouts(streamSilence, 0)", "conn.SetTimeouts(streamSilence, streamSilence)"},
		},
		tests: "./adapters/raftlog -run TestServeClient_Stalled",
	},
	{
		name: "raftlog/rpc-streams", breaks: "a client has any number of streams",
		file: "adapters/raftlog/internal/rpc/serverstream.go",
		edits: []edit{
			{"load{conns: 1, streams: 1})", "load{conns: 1})"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestServer_LimitsStreams",
	},
	{
		name: "raftlog/rpc-pings", breaks: "a client sends nothing on a stream",
		file: "adapters/raftlog/internal/rpc/stream.go",
		edits: []edit{
			{"		case <-ticker.C:\n", ""},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestServer_BackPressure",
	},
	{
		name: "raftlog/refusal-majority", breaks: "one peer stops a voter that has entries",
		file: "adapters/raftlog/internal/identity/refusals.go",
		edits: []edit{
			{"return n > len(voters)/2", "return n > 0"},
		},
		tests: "./adapters/raftlog/internal/identity -run TestRefusals",
	},
	{
		name: "raftlog/refusal-founding", breaks: "a peer of another founding stops a voter that has entries",
		file: "adapters/raftlog/internal/identity/refusals.go",
		edits: []edit{
			{"return !established", "return true"},
		},
		tests: "./adapters/raftlog/internal/identity -run TestRefusals",
	},
	{
		name: "raftlog/refusal-time", breaks: "refusals count for any time",
		file: "adapters/raftlog/internal/identity/refusals.go",
		edits: []edit{
			{"if s.counts && now-s.last <= refusalTime &&", "if s.counts &&"},
		},
		tests: "./adapters/raftlog/internal/identity -run TestRefusals",
	},
	{
		name: "raftlog/peers-sum", breaks: "a damaged list of peers is used",
		file: "adapters/raftlog/internal/identity/files.go",
		edits: []edit{
			{"c.Sum == nil || *c.Sum != checksum(c.Peers)", "c.Sum == nil"},
		},
		tests: "./adapters/raftlog/internal/identity -run TestPeers_Damaged",
	},
	{
		name: "raftlog/uncommitted", breaks: "a peer that has committed nothing stops peers of another founding",
		file: "adapters/raftlog/internal/identity/registry.go",
		edits: []edit{
			{"reason, text = link.ReasonUncommitted", "reason, text = link.ReasonFounding"},
		},
		tests: "./adapters/raftlog/internal/identity -run TestRegistry",
	},
	{
		name: "raftlog/found-refused", breaks: "a peer founds the cluster again although an established one refuses it",
		file: "adapters/raftlog/founding.go",
		edits: []edit{
			{"\tif refused != nil {", "\tif false {"},
		},
		tests: "./adapters/raftlog -run TestFounding_LaterList",
	},
	{
		name: "raftlog/found-again", breaks: "a founding without entries cannot be corrected",
		file: "adapters/raftlog/founding.go",
		edits: []edit{
			{`return false, nil
	}
	unused`, `return false, nil
	}
	if true {
		return false, nil
	}
	unused`},
		},
		tests: "./adapters/raftlog -run TestFounding_Again",
	},
	{
		name: "raftlog/lost-voter-joins", breaks: "a voter that has lost its directory joins again",
		file: "adapters/raftlog/node.go",
		edits: []edit{
			{"n.joined && state", "false && state"},
		},
		tests: "./adapters/raftlog -run TestIdentity_LostVoterJoins",
	},
	{
		name: "raftlog/version-range", breaks: "sides without a common version connect",
		file: "adapters/raftlog/internal/link/hello.go",
		edits: []edit{
			{"n >= max(v.Lowest, other.Lowest)", "n > 0"},
		},
		tests: "./adapters/raftlog/internal/link -run TestHandshake_Versions",
	},
	{
		name: "raftlog/client-claim", breaks: "clients receive the claim of a peer",
		file: "adapters/raftlog/internal/link/handshake.go",
		edits: []edit{
			{"case g.hello.Peer:", "default:"},
		},
		tests: "./adapters/raftlog/internal/link -run TestHandshake_Client",
	},
	{
		name: "raftlog/welcome-sender", breaks: "a peer that is not the leader stops another one",
		file: "adapters/raftlog/internal/core/admission.go",
		edits: []edit{
			{" || sender != c.lead", ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestWelcome_OfLeader",
	},
	{
		name: "raftlog/passed-on", breaks: "a follower does not pass on announcements",
		file: "adapters/raftlog/internal/core/admission.go",
		edits: []edit{
			{"c.state == raft.StateFollower && known", "false && known"},
		},
		tests: "./adapters/raftlog/internal/core -run TestMove_PassedOn",
	},
	{
		name: "raftlog/seed-address", breaks: "a member is dialed only at its address in the log",
		file: "adapters/raftlog/internal/core/core.go",
		edits: []edit{
			{"!slices.Contains(all, p)", "!slices.ContainsFunc(all, func(q api.Peer) bool { return q.ID == p.ID })"},
		},
		tests: "./adapters/raftlog/internal/core -run TestPeers_Addresses",
	},
	{
		name: "raftlog/moved-session", breaks: "a connection ends although its address remains",
		file: "adapters/raftlog/internal/transport/transport.go",
		edits: []edit{
			{"case p.dialed != nil && p.dialer != nil &&", "case false &&"},
		},
		tests: "./adapters/raftlog/internal/transport -run TestDialer_TwoAddresses",
	},
	{
		name: "raftlog/cut-off", breaks: "a voter that the leader does not reach never has a leader",
		file: "adapters/raftlog/internal/core/admission.go",
		edits: []edit{
			{"\tc.cutOff.announcementPassedOn(c, c.names.numberOf(sender), c.names.numberOf(from))\n", ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestCutOff",
	},
	{
		name: "raftlog/resign-confirmed", breaks: "a resignation is confirmed while the request to join can still be applied",
		file: "adapters/raftlog/campaign.go",
		edits: []edit{
			{"(c.joined != 0 ||", "(true ||"},
		},
		tests: "./adapters/raftlog -run TestResign_WithoutMajority",
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
	{
		name: "raftlog/replaced-certificate", breaks: "replaced files of a certificate are not read again",
		file: "cmd/internal/tlsfile/replaceable.go",
		edits: []edit{
			{`changed || !equalStates(state, r.states[i])`, `changed`},
		},
		tests: "./cmd/internal/tlsfile -run TestConfig_ReplacedFiles",
	},
}
