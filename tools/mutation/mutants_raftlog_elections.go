package main

// raftlogElectionMutants break rules of elections on the Raft log.
var raftlogElectionMutants = []mutant{
	{
		name: "raftlog/fenced", breaks: "an update of an ended leadership is written",
		file: "adapters/raftlog/internal/core/propose.go",
		edits: []edit{
			{"case !known && certainlyFenced(c, q.Guard):", "case false:"},
		},
		tests: "./adapters/raftlog/internal/core -run ^TestGuard_",
	},
	{
		name: "raftlog/read-earlier", breaks: "a read uses the reply to a request that was sent before its call",
		file: "adapters/raftlog/internal/core/lease.go",
		edits: []edit{
			{"if r.index == 0 && seq > r.after {", "if r.index == 0 && seq >= r.after {"},
		},
		tests: "./adapters/raftlog/internal/core -run TestRead_ConcurrentReadersShareLeaseRequest",
	},
	{
		name: "raftlog/read-shared", breaks: "each of several concurrent reads sends a request",
		file: "adapters/raftlog/internal/core/lease.go",
		edits: []edit{
			{"found && now-newest.at < c.cfg.Tick {", "found && now-newest.at < 0 {"},
		},
		tests: "./adapters/raftlog/internal/core -run TestRead_ConcurrentReadersShareLeaseRequest",
	},
	{
		name: "raftlog/token", breaks: "an update is rejected before its leadership is applied",
		file: "adapters/raftlog/internal/core/propose.go",
		edits: []edit{
			{"g.Token <= c.replica.Index && !c.replica.GuardHolds(g)", "!c.replica.GuardHolds(g)"},
		},
		tests: "./adapters/raftlog/internal/core -run ^TestGuard_",
	},
	{
		name: "raftlog/holds", breaks: "an update of an ended leadership is applied",
		file: "adapters/raftlog/internal/replica/replica.go",
		edits: []edit{
			{"case !s.GuardHolds(o.Guard):", "case false:"},
		},
		tests: "./adapters/raftlog/internal/core -run ^TestGuard_",
	},
	{
		name: "raftlog/candidates-changed", breaks: "a change of an election does not update the candidates of this peer",
		file: "adapters/raftlog/internal/core/ready.go",
		edits: []edit{
			{"\t\tc.candidates.markElection(c, election)", "\t\t_ = election"},
		},
		tests: "./adapters/raftlog/internal/core -run TestCandidates_OfEarlierProcessAreRemoved",
	},
	{
		name: "raftlog/candidates-found", breaks: "the candidates of an earlier process remain",
		file: "adapters/raftlog/internal/core/core.go",
		edits: []edit{
			{`	c.candidates.markAll(c)
`, ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestCandidates_OfEarlierProcessAreRemoved",
	},
	{
		name: "raftlog/snapshot-candidates", breaks: "a snapshot does not update the candidates of this peer",
		file: "adapters/raftlog/internal/core/ready.go",
		edits: []edit{
			{`		c.candidates.markAll(c)
`, ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestCandidates_AreReconciledWithInstalledSnapshot",
	},
	{
		name: "raftlog/elections-count", breaks: "the count of candidates of a name only grows",
		file: "adapters/raftlog/internal/replica/elections.go",
		edits: []edit{
			{"es.addToCounts(name, es.byName[name], -1)", ""},
		},
		tests: "./adapters/raftlog/internal/replica -run TestElections_IndexByPeerMatchesQueues",
	},
	{
		name: "raftlog/forget-lease", breaks: "an election is forgotten while its leader may have a lease",
		file: "adapters/raftlog/internal/core/expiry.go",
		edits: []edit{
			{"c.cfg.Disabled.Has(replica.CheckForget) || x.mayRestart(c, election)", "true"},
		},
		tests: "./adapters/raftlog/internal/core -run TestForget_WaitsUntilLeasesHaveExpired",
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
		tests: "./adapters/raftlog/internal/core -run TestForget_RemovesEndedElectionsAfterWindow",
	},
	{
		name: "raftlog/forget-window", breaks: "an election is forgotten before the window has passed",
		file: "adapters/raftlog/internal/core/expiry.go",
		edits: []edit{
			{"before := c.entryTime().Add(-c.replica.Window)", "before := c.entryTime().Add(maxClockLag + 1)"},
		},
		tests: "./adapters/raftlog/internal/core -run TestForget_RemovesEndedElectionsAfterWindow",
	},
	{
		name: "raftlog/forget-late-end", breaks: "a delayed request ends an election that was forgotten and restarted",
		file: "adapters/raftlog/internal/replica/elections.go",
		edits: []edit{
			{"case op.Through < es.forgotten:", "case false:"},
		},
		tests: "./adapters/raftlog/internal/core -run TestForget_WaitsUntilLeasesHaveExpired",
	},
	{
		name: "raftlog/forget-later-end", breaks: "a forgotten entry removes an election that was ended again",
		file: "adapters/raftlog/internal/replica/elections.go",
		edits: []edit{
			{"case e.EndedAt == t.index:", "case e.Ended:"},
		},
		tests: "./adapters/raftlog/internal/replica -run TestForget_RemovesOnlyElectionsEndedBefore$",
	},
	{
		name: "raftlog/forget-snapshot", breaks: "requests that are too late are accepted after a snapshot",
		file: "adapters/raftlog/internal/replica/codec.go",
		edits: []edit{
			{`if es.forgotten = d.Uint64("index"); es.forgotten > index {`, `if forgotten := d.Uint64("index"); forgotten > index {`},
		},
		tests: "./adapters/raftlog/internal/replica -run TestRead_RestoresWrittenState",
	},
	{
		name: "raftlog/end-twice", breaks: "ending an ended election writes a request that can be applied after it was forgotten",
		file: "adapters/raftlog/election.go",
		edits: []edit{
			{"case err == nil && over && op.Do == replica.End:", "case false && over:"},
		},
		tests: "./adapters/raftlog -run TestDeleteElection_AllowsNewCandidatesAfterWindow",
	},
	{
		name: "raftlog/next", breaks: "each candidate behind another one is next",
		file: "adapters/raftlog/campaign.go",
		edits: []edit{
			{"position == 1)", "position > 0)"},
		},
		tests: "./adapters/raftlog -run ^TestCampaign_SecondCandidateIsNext$",
	},
	{
		name: "raftlog/former-token", breaks: "a head that leaves without a leadership counts as a leader that has resigned",
		file: "adapters/raftlog/internal/replica/elections.go",
		edits: []edit{
			{"op.Through != 0 && op.Through == e.Candidates[0].Token", "true"},
		},
		tests: "./adapters/raftlog/internal/replica -run ^TestElections_RecordHowFormerHeadLeft$",
	},
	{
		name: "raftlog/former-led", breaks: "a candidate that has not led leaves as a leader",
		file: "adapters/raftlog/campaign.go",
		edits: []edit{
			{"\t\t\tc.token = token\n", "\t\t\tc.token, c.led = token, true\n"},
		},
		tests: "./adapters/raftlog -run ^TestCampaign_KnowsHowFormerLeaderLeft$",
	},
	{
		name: "raftlog/resign-confirmed", breaks: "a resignation is confirmed while the request to join can still be applied",
		file: "adapters/raftlog/campaign.go",
		edits: []edit{
			{"(c.joined != 0 ||", "(true ||"},
		},
		tests: "./adapters/raftlog -run TestResign_ReturnsErrUnconfirmedWithoutMajority",
	},
}
