package main

// changefeedMutants break rules of elections by changefeed.
var changefeedMutants = []mutant{
	{
		name: "changefeed/hint-read", breaks: "a hint is not followed by a read",
		file: "adapters/changefeed/internal/protocol/decide.go",
		edits: []edit{
			{"if m.Hinted {", "if false {"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestHintedHeartbeat",
	},
	{
		name: "changefeed/hint-flag", breaks: "a hint is taken for a read",
		file: "adapters/changefeed/internal/protocol/step.go",
		edits: []edit{
			{"m.Cur, m.Hinted, m.ClaimAt = r, true,", "m.Cur, m.Hinted, m.ClaimAt = r, false,"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestHintedHeartbeat",
	},
	{
		name: "changefeed/hint-other", breaks: "a hint that is no heartbeat changes the record",
		file: "adapters/changefeed/internal/protocol/step.go",
		edits: []edit{
			{"!m.Known || r != next || r.Leader == \"\"", "!m.Known || r.Leader == \"\""},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestHintsAreNoProof",
	},
	{
		name: "changefeed/same-sequence", breaks: "a read does not correct a false hint",
		file: "adapters/changefeed/internal/protocol/step.go",
		edits: []edit{
			{"r.Seq == m.Cur.Seq && !m.Hinted", "r.Seq == m.Cur.Seq"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestFalseHint",
	},
	{
		name: "changefeed/late-claim", breaks: "a claim whose answer is late grants leadership",
		file: "adapters/changefeed/internal/protocol/step.go",
		edits: []edit{
			{"!mine || m.in.Late || m.Over", "!mine || m.Over"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestLateClaim",
	},
	{
		name: "changefeed/stop-guard", breaks: "a claim leads within the time that is reserved for stopping",
		file: "adapters/changefeed/internal/protocol/step.go",
		edits: []edit{
			{"m.now < m.Sent+m.Lease-m.Guard", "m.now < m.Sent+m.Lease"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestClaimsThatDoNotLead",
	},
	{
		name: "changefeed/deadline", breaks: "a lease counts from the answer",
		file: "adapters/changefeed/internal/protocol/step.go",
		edits: []edit{
			{"m.Deadline, m.Beaten = m.Sent+m.Lease, m.Sent", "m.Deadline, m.Beaten = m.now+m.Lease, m.Sent"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestDeadline",
	},
	{
		name: "changefeed/clock-rates", breaks: "different rates of clocks are not taken into account",
		file: "adapters/changefeed/internal/protocol/step.go",
		edits: []edit{
			{"math.Ceil(m.Kappa*float64(ttl))", "math.Ceil(float64(ttl))"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestPutBackOfALongLease",
	},
	{
		name: "changefeed/held-ttl", breaks: "the longer lease of another candidate is not waited for",
		file: "adapters/changefeed/internal/protocol/step.go",
		edits: []edit{
			{"max(m.Lease, m.Cur.TTL)", "m.Lease"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestPutBackOfALongLease",
	},
	{
		name: "changefeed/superseded", breaks: "a leader does not notice a later term",
		file: "adapters/changefeed/internal/protocol/step.go",
		edits: []edit{
			{"r.Session != m.Session || r.Term != m.Term)", "r.Session != m.Session)"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestSuperseded",
	},
	{
		name: "changefeed/blind-claim", breaks: "a candidate without a feed claims",
		file: "adapters/changefeed/internal/protocol/decide.go",
		edits: []edit{
			{"case m.Feed && m.mayClaim():", "case m.mayClaim():"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestBlindCandidates",
	},
	{
		name: "changefeed/term", breaks: "terms decrease after an older record returns",
		file: "adapters/changefeed/internal/protocol/decide.go",
		edits: []edit{
			{"Term: m.MaxTerm + 1, TTL", "Term: m.Cur.Term + 1, TTL"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestPutBackOfALongLease",
	},
	{
		name: "changefeed/last-term", breaks: "terms are not bounded",
		file: "adapters/changefeed/internal/protocol/decide.go",
		edits: []edit{
			{"if m.MaxTerm >= MaxTerm {", "if false {"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestLastTerm",
	},
	{
		name: "changefeed/left-doubt", breaks: "a candidate leaves although its claim may have been applied",
		file: "adapters/changefeed/internal/protocol/decide.go",
		edits: []edit{
			{"m.Op != None || m.Doubt || !m.Known", "m.Op != None || !m.Known"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestLeavesAfterARead",
	},
	{
		name: "changefeed/owed", breaks: "an outstanding write of the feed is counted again",
		file: "adapters/changefeed/internal/protocol/feed.go",
		edits: []edit{
			{"if m.Owed == 0 && (m.FedEpoch", "if (m.FedEpoch"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestOwedWrites",
	},
	{
		name: "changefeed/feed-hint", breaks: "a feed delivers any message as a hint",
		file: "adapters/changefeed/feed.go",
		edits: []edit{
			{"e.Hint && f.heartbeat(e.Record) ||", "e.Hint ||"},
		},
		tests: "./adapters/changefeed -run TestFeedHintOfOther",
	},
	{
		name: "changefeed/feed-proof", breaks: "a feed does not deliver a read after a hint of it",
		file: "adapters/changefeed/feed.go",
		edits: []edit{
			{"case !f.started || f.last.Hint:", "case !f.started:"},
		},
		tests: "./adapters/changefeed -run TestFeedProvesHint",
	},
	{
		name: "changefeed/feed-quiet", breaks: "a feed trusts a silent watch",
		file: "adapters/changefeed/feed.go",
		edits: []edit{
			{"			err = f.check()\n", "			err = nil\n"},
		},
		tests: "./adapters/changefeed -run TestFeedHint$",
	},
}
