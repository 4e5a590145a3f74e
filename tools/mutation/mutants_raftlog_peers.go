package main

// raftlogPeerMutants break rules about which peers of the Raft log participate, and how they connect.
var raftlogPeerMutants = []mutant{
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
		tests: "./adapters/raftlog -run TestFoundCluster_IsNotRepeatedWithLaterPeers",
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
		tests: "./adapters/raftlog -run TestFoundCluster_WrongPeersCanBeCorrected",
	},
	{
		name: "raftlog/lost-voter-joins", breaks: "a voter that has lost its directory joins again",
		file: "adapters/raftlog/node.go",
		edits: []edit{
			{"n.joined && state", "false && state"},
		},
		tests: "./adapters/raftlog -run TestIdentity_RejectsJoinOfVoterThatLostDirectory",
	},
	{
		name: "raftlog/version-range", breaks: "sides without a common version connect",
		file: "adapters/raftlog/internal/link/hello.go",
		edits: []edit{
			{"n >= max(v.Lowest, other.Lowest)", "n > 0"},
		},
		tests: "./adapters/raftlog/internal/link -run TestHandshake_UsesHighestCommonVersion",
	},
	{
		name: "raftlog/client-claim", breaks: "clients receive the claim of a peer",
		file: "adapters/raftlog/internal/link/handshake.go",
		edits: []edit{
			{"case g.hello.Peer:", "default:"},
		},
		tests: "./adapters/raftlog/internal/link -run TestHandshake_ClientHasNoPeerAccess",
	},
	{
		name: "raftlog/welcome-sender", breaks: "a peer that is not the leader stops another one",
		file: "adapters/raftlog/internal/core/admission.go",
		edits: []edit{
			{" || sender != c.lead", ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestWelcome_OnlyLeaderCanStopPeer",
	},
	{
		name: "raftlog/passed-on", breaks: "a follower does not pass on announcements",
		file: "adapters/raftlog/internal/core/admission.go",
		edits: []edit{
			{"c.state == raft.StateFollower && known", "false && known"},
		},
		tests: "./adapters/raftlog/internal/core -run TestMove_IsReportedToLeaderByOtherMember",
	},
	{
		name: "raftlog/seed-address", breaks: "a member is dialed only at its address in the log",
		file: "adapters/raftlog/internal/core/core.go",
		edits: []edit{
			{"!slices.Contains(all, p)", "!slices.ContainsFunc(all, func(q api.Peer) bool { return q.ID == p.ID })"},
		},
		tests: "./adapters/raftlog/internal/core -run TestPeers_ReturnsBothAddressesOfMember",
	},
	{
		name: "raftlog/moved-session", breaks: "a connection ends although its address remains",
		file: "adapters/raftlog/internal/transport/transport.go",
		edits: []edit{
			{"case p.dialed != nil && p.dialer != nil &&", "case false &&"},
		},
		tests: "./adapters/raftlog/internal/transport -run TestDialer_TriesBothAddresses",
	},
	{
		name: "raftlog/cut-off", breaks: "a voter that the leader does not reach never has a leader",
		file: "adapters/raftlog/internal/core/admission.go",
		edits: []edit{
			{"\tc.cutOff.handlePassedOnAnnouncement(c, c.names.numberOf(sender), c.names.numberOf(from))\n", ""},
		},
		tests: "./adapters/raftlog/internal/core -run TestCutOff_LeaderTransfersToPeerThatReachesVoter",
	},
	{
		name: "raftlog/peer-again", breaks: "a process that is refused after it has become a member remains connected",
		file: "adapters/raftlog/internal/transport/session.go",
		edits: []edit{
			{"\t\ts.closeIfNotAccepted()\n\t}\n", "\t\t_ = s\n\t}\n"},
		},
		tests: "./adapters/raftlog/internal/transport -run TestCheckPeers",
	},
	{
		name: "raftlog/peer-between", breaks: "a process that is refused after its handshake, before the session is known, remains connected",
		file: "adapters/raftlog/internal/transport/session.go",
		edits: []edit{
			{"check again.\n\ts.closeIfNotAccepted()\n", "check again.\n"},
		},
		tests: "./adapters/raftlog/internal/transport -run TestCheckPeers",
	},
	{
		name: "raftlog/names-unverified", breaks: "the names of certificates that are not verified count",
		file: "adapters/raftlog/internal/link/identity.go",
		edits: []edit{
			{"case i.TLS != nil && i.TLS.InsecureSkipVerify && !hasVerification(i.TLS) && ", "case false && "},
		},
		tests: "./adapters/raftlog/internal/link -run TestValidate_RejectsInvalidIdentity",
	},
}
