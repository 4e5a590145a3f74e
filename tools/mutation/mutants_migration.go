package main

// migrationMutants break package migration, whose candidates lead only while they lead two elections.
var migrationMutants = []mutant{
	{
		name: "migration/deadline", breaks: "the lease of the new election is not considered",
		file: "migration/candidate.go",
		edits: []edit{
			{"earlierDeadline(old.Deadline(), new.Deadline())", "old.Deadline()"},
		},
		tests: "./migration -run ^TestCandidate_JoinsNewElectionAfterLeadingOld$",
	},
	{
		name: "migration/both-at-once", breaks: "a candidate joins the new election before it leads the old one",
		file: "migration/attempt.go",
		edits: []edit{
			{"case p == waiting && inOld == leaderelection.Leader:", "case p == waiting:"},
		},
		tests: "./migration -run ^TestCandidate_JoinsNewElectionAfterLeadingOld$",
	},
	{
		name: "migration/next", breaks: "a status does not say that the candidate is next",
		file: "migration/attempt.go",
		edits: []edit{
			{" || current.Next != waits.Next) {", ") {"},
		},
		tests: "./migration -run ^TestCandidate_ReportsNextInEitherElection$",
	},
	{
		name: "migration/lost-status", breaks: "a candidate that has lost a leadership and gained another continues to lead",
		file: "migration/attempt.go",
		edits: []edit{
			{"former != nil && former != status.Leadership", "false"},
			{"case <-a.old.leadershipDone():", "case <-chan struct{}(nil):"},
		},
		tests: "./migration -run ^TestCandidate_RejoinsAfterLossOfEitherLeadership$",
	},
	{
		name: "migration/lost-new", breaks: "the loss of the new election ends the leadership only when its status is received",
		file: "migration/attempt.go",
		edits: []edit{
			{"case <-a.new.leadershipDone():", "case <-chan struct{}(nil):"},
		},
		tests: "./migration -run ^TestCandidate_RejoinsAfterLossOfEitherLeadership$",
	},
	{
		name: "migration/listens", breaks: "a backend waits for the resignation of a program that does not listen to requests",
		file: "migration/attempt.go",
		edits: []edit{
			{"	default:\n	}\n	s.start()", "	default:\n		s.listen()\n	}\n	s.start()"},
		},
		tests: "./migration -run ^TestCandidate_ForwardsResignRequests$",
	},
	{
		name: "migration/grace", breaks: "the other leadership is resigned at once",
		file: "migration/attempt.go",
		edits: []edit{
			{"_ = limit.Pause(ctx, a.options.grace)", "_ = limit.Pause(ctx, 0)"},
		},
		tests: "./migration -run ^TestCandidate_RejoinsAfterLossOfEitherLeadership$",
	},
	{
		name: "migration/late-revocation", breaks: "the leadership ends after the resignations",
		file: "migration/attempt.go",
		edits: []edit{
			{"		a.candidacy.Revoke(reason)\n", "		defer a.candidacy.Revoke(reason)\n"},
		},
		tests: "./migration -run ^TestCandidate_RejoinsAfterLossOfEitherLeadership$",
	},
	{
		name: "migration/unreachable-pause", breaks: "a candidate joins the old election without a pause while the new backend is unreachable",
		file: "migration/candidate.go",
		edits: []edit{
			{"if errors.Is(reason, leaderelection.ErrUnreachable) {", "if false {"},
		},
		tests: "./migration -run ^TestCandidate_UnreachableBackendDoesNotEndCandidacy$",
	},
	{
		name: "migration/join-limit", breaks: "a leader of the old election that does not reach the new backend keeps its place",
		file: "migration/attempt.go",
		edits: []edit{
			{"	return a.joinTimer.C\n", "	return nil\n"},
		},
		tests: "./migration -run ^TestCandidate_LeavesIfItCannotJoinNewElection$",
	},
	{
		name: "migration/unstarted", breaks: "a candidate that resigns before its start leaves the old candidate behind",
		file: "migration/candidate.go",
		edits: []edit{
			{"	return c.resign()\n", "	return nil\n"},
		},
		tests: "./migration -run ^TestCandidate_ResignBeforeStartResignsOldCandidate$",
	},
	{
		name: "migration/stale-status", breaks: "a candidate leads although a leadership has ended since its status",
		file: "migration/attempt.go",
		edits: []edit{
			{"	if next == leading {\n", "	if false {\n"},
		},
		tests: "./migration -run ^TestCandidate_IgnoresStaleStatus$",
	},
	{
		name: "migration/close", breaks: "the leadership ends only some time after the owner has closed a connection",
		file: "migration/candidate.go",
		edits: []edit{
			{"	connection.EndOnClose(new, both)\n", ""},
		},
		tests: "./migration -run ^TestCandidate_EndsLeadershipBeforeSessionIsClosed$",
	},
	{
		name: "migration/turn-limit", breaks: "a leader of the old election waits for its turn in the new one without a limit",
		file: "migration/attempt.go",
		edits: []edit{
			{"a.joinTimer.Reset(turnLimit * a.options.joinLimit)", "a.joinTimer.Stop()"},
		},
		tests: "./migration -run ^TestCandidate_LeavesIfItNeverLeadsNewElection$",
	},
	{
		name: "migration/unconfirmed", breaks: "Resign forgets an earlier resignation that is not confirmed",
		file: "migration/candidate.go",
		edits: []edit{
			{"s != new && s.isUnconfirmed()", "false"},
		},
		tests: "./migration -run ^TestCandidate_ResignReturnsUnconfirmedErrors$",
	},
}
