package main

// rejectionMutants break rules of requests that the servers reject or do not answer.
var rejectionMutants = []mutant{
	{
		name: "request/explain", breaks: "the error of an operation without an answer does not name the server and the reason",
		file: "internal/zk/connection/errors.go",
		edits: []edit{
			{"failure != nil {", "false {"},
		},
		tests: "./internal/zk/connection -run ^TestExplain_NamesServerAndReasonOfOutage$",
	},
	{
		name: "request/probe", breaks: "the answer to the request that detects Close is discarded",
		file: "internal/zk/connection/request.go",
		edits: []edit{
			{"	return Reject(ctx, conn, answer)\n", "	return nil\n"},
		},
		tests: "./internal/zk/connection -run ^TestRead_ReportsRequiredAuthentication$",
	},
	{
		name: "session/rejected", breaks: "a check that is answered with a final code only costs the lease",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{`	for _, s := range m.proving {
		s.reject(err)
	}
`, ""},
		},
		tests: ". -run ^TestElectLeader_EndsIfServersRejectLeaseCheck$",
	},
	{
		name: "rejection/rejoin", breaks: "a candidate with WithRejoin ends because of a condition that passes",
		file: "election.go",
		edits: []edit{
			{`rejected := connection.IsPassing(err) && e.ID() != ""`, "rejected := false"},
		},
		tests: ". -run ^TestElectLeader_ContinuesAfterTemporaryRejection$",
	},
	{
		name: "rejection/first", breaks: "a candidate that has never joined waits until the servers accept its requests",
		file: "election.go",
		edits: []edit{
			{`rejected := connection.IsPassing(err) && e.ID() != ""`, "rejected := connection.IsPassing(err)"},
		},
		tests: ". -run ^TestElectLeader_ContinuesAfterTemporaryRejection$",
	},
	{
		name: "rejection/removal", breaks: "a candidate joins again behind its znode that it could not delete",
		file: "internal/zk/queue/requests.go",
		edits: []edit{
			{"if r.cfg.Rejoins && res.request.Last", "if false && res.request.Last"},
		},
		tests: ". -run ^TestElectLeader_LeavesNoZnodeAfterRejectedRemoval$",
	},
	{
		name: "rejection/keeper", breaks: "a group member ends because of a condition that passes",
		file: "internal/zk/ephemeral/keeper.go",
		edits: []edit{
			{"case k.cfg.Retry, k.created && connection.IsPassing(err):", "case k.cfg.Retry:"},
		},
		tests: "./recipes/group -run ^TestPersistent_SurvivesExceededQuotaAfterFirstCreate$",
	},
}
