package main

// electionMutants break rules of elections.
var electionMutants = []mutant{
	{
		name: "election/R3", breaks: "Resign returns nil although the removal is not confirmed",
		file: "resign.go",
		edits: []edit{
			{`	if e.hasLeft() {
		return nil
	}
	znode`, `	if e.hasLeft() || true {
		return nil
	}
	znode`},
		},
		tests: "./internal/zk/queue -run ^TestContender_DeletesZnodeAfterLossOfAllPackets$/^until_the_client_dials_again$",
	},
	{
		name: "election/D1", breaks: "the second candidate is not woken when the tombstone is created",
		file: "delete.go",
		edits: []edit{
			{`				ops = append(ops, wake)
`, `				_ = wake
`},
		},
		tests: ". -run ^TestObserve_EndsWhenTombstoneIsCreated$",
	},
	{
		name: "election/D2", breaks: "candidates are deleted from the head of the queue",
		file: "delete.go",
		edits: []edit{
			{`	slices.Reverse(names)
`, ""},
		},
		tests: ". -run ^TestDeleteElection_DeletesInReverseOrder$",
	},
	{
		name: "election/leaving", breaks: "a transaction that deletes candidates is sent again for each candidate that has left",
		file: "delete.go",
		edits: []edit{
			{"\t\tmost = len(chunk) / 2\n", ""},
			{"return !found", "return !found && name == chunk[0]"},
		},
		tests: ". -run ^TestDeleteElection_LimitsRequestsWhileCandidatesLeave$",
	},
	{
		name: "election/D3", breaks: "DeleteElection deletes the candidates of another election at the same path",
		file: "delete.go",
		edits: []edit{
			{"\tcase d.czxid != found.stat.Czxid:", "\tcase false:"},
		},
		tests: ". -run ^TestDeleteElection_SparesLaterElectionAtSamePath$",
	},
	{
		name: "election/D4", breaks: "the tombstone of an interrupted DeleteElection remains",
		file: "delete.go",
		edits: []edit{
			{"\t\t\treturn d.removeTombstone()\n", "\t\t\treturn nil\n"},
		},
		tests: ". -run ^TestDeleteElection_SparesLaterElectionAtSamePath$",
	},
	{
		name: "election/T1", breaks: "the loss of a leadership is not delivered",
		file: "streams.go",
		edits: []edit{
			{"\tif s.Leadership == nil || f.held == nil || s.Leadership == f.held {", "\tif true {"},
		},
		tests: ". -run ^TestStatusFeed_DeliversLossOfReceivedLeadership$",
	},
	{
		name: "election/statuses-order", breaks: "a loss is forgotten whose reader has not received the next leadership yet",
		file: "streams.go",
		edits: []edit{
			{"if <-f.next.sent {", "if <-f.next.sent || true {"},
		},
		tests: ". -run ^TestStatusFeed_DeliversLossOfReceivedLeadership$",
	},
	{
		name: "election/options-granted", breaks: "an election accepts a timeout longer than granted",
		file: "options.go",
		edits: []edit{
			{"err := o.Check(); err != nil", "err := o.Check(); false"},
		},
		tests: ". -run TestWithSessionTimeout_RejectsLongerThanGranted",
	},
	{
		name: "recipe/options-granted", breaks: "a recipe accepts a timeout longer than granted",
		file: "internal/zk/recipe/recipe.go",
		edits: []edit{
			{"err := s.Check(); err != nil", "err := s.Check(); false && err != nil"},
		},
		tests: "./recipes/lock -run TestOptions_RejectTimeoutAboveGrantedTimeout",
	},
	{
		name: "election/data-lost", breaks: "the loss of the servers' data is not reported",
		file: "election.go",
		edits: []edit{
			{"connection.RecordOf(e.conn).Facts().Losses != e.lastSeen().losses", "false && connection.RecordOf(e.conn).Facts().Losses != 0"},
		},
		tests: ". -run AfterDataLoss$",
	},
	{
		name: "election/starts-later", breaks: "NewElection with WithRejoin fails without ZooKeeper",
		file: "election.go",
		edits: []edit{
			{"!(o.rejoin && errors.Is(err, ErrUnreachable))", "true"},
		},
		tests: ". -run TestWithRejoin_WaitsUntilZooKeeperStarts",
	},
	{
		name: "election/stopped-as-session-expires", breaks: "a stopped candidate reports session expiry as the reason",
		file: "election.go",
		edits: []edit{
			{"if ctx.Err() != nil {\n\t\treturn context.Cause(ctx)", "if false {\n\t\treturn context.Cause(ctx)"},
		},
		tests: ". -run TestRejoinAfter_ReturnsReasonIfCandidacyIsOver",
	},
	{
		name: "election/joined", breaks: "a second znode at the same path is not reported as joined",
		file: "election.go",
		edits: []edit{
			{"(!e.joined || s.Path != e.ID())", "s.Path != e.ID()"},
		},
		tests: ". -run ^TestEvents_ReportsJoinedForNewZnodeAtSamePath$",
	},
	{
		name: "watch/doubt", breaks: "a watch that was set before a reconnect is trusted",
		file: "internal/zk/watch/read.go",
		edits: []edit{
			{"w, w != nil && w.epoch < r.epoch ||", "w, false ||"},
		},
		tests: "./internal/zk/watch -run TestReader_SetsLostPooledWatchAgain",
	},
	{
		name: "watch/shared-read", breaks: "a read returns the reply to a request that was sent before the call",
		file: "internal/zk/watch/read.go",
		edits: []edit{
			{"r.number <= after || r.epoch", "false && r.number <= after || r.epoch"},
		},
		tests: "./internal/zk/watch -run TestRead_ReturnsNoAnswerOlder|TestListing",
	},
	{
		name: "election/R1x", breaks: "a request to resign is withdrawn with a context that is done",
		file: "resign/resign.go",
		edits: []edit{
			{"WithTimeout(context.WithoutCancel(ctx), limit.Confirm)", "WithTimeout(ctx, limit.Confirm)"},
		},
		tests: "./resign -run TestRequest",
	},
	{
		name: "election/sync", breaks: "a lagging server is read without Sync",
		file: "election.go",
		edits: []edit{
			{"if _, err := e.conn.Sync(e.node); err != nil {", "if _, err := \"\", error(nil); err != nil {"},
		},
		tests: ". -run ^TestNewElection_FindsPresentNodeOnLaggingServer$",
	},
	{
		name: "election/unconfirmed", breaks: "a candidate ends because a lagging server has shown it an earlier election",
		file: "election.go",
		edits: []edit{
			{"cfg.QueueUnconfirmed = !seen.confirmed", "cfg.QueueUnconfirmed = false"},
		},
		tests: ". -run ^TestNewElection_FindsPresentNodeOnLaggingServer$",
	},
	{
		name: "election/end-unconfirmed", breaks: "EndElection ends only the election that a lagging server has shown",
		file: "delete.go",
		edits: []edit{
			{"if seen := e.lastSeen(); seen.confirmed {", "if seen := e.lastSeen(); true {"},
		},
		tests: ". -run ^TestEndElection_EndsPresentElectionOnLaggingServer$",
	},
	{
		name: "election/end-over", breaks: "EndElection of a candidate whose election was over ends a later one",
		file: "election.go",
		edits: []edit{
			{"if errors.Is(err, ErrElectionOver) && ctx.Err() == nil {", "if false {"},
		},
		tests: ". -run ^TestEndElection_EndsAllCandidacies$",
	},
	{
		name: "election/data", breaks: "the first candidate overwrites the data of the election node",
		file: "internal/zk/queue/requests.go",
		edits: []edit{
			{"return cfg.UnusedVersion, permitted || !known", "return -1, permitted || !known"},
		},
		tests: ". -run ^TestElectLeader_KeepsDataOfElectionNode$",
	},
	{
		name: "election/other", breaks: "DeleteElection ends another election at the same path",
		file: "delete.go",
		edits: []edit{
			{"case d.czxid != found.stat.Czxid:", "case false:"},
		},
		tests: ". -run ^TestDeleteElection_SparesLaterElectionAtSamePath$",
	},
	{
		name: "election/R1", breaks: "Done is closed after the status Suspended",
		file: "candidacy.go",
		edits: []edit{
			{`	if c.endLeadership(reason) {
		c.Publish(Status{Role: Suspended})
`, `	if c.Leadership() != nil {
		c.Publish(Status{Role: Suspended})
		c.endLeadership(reason)
`},
		},
		tests: ". -run ^TestLeadership_ClosesDoneBeforeSuspendedStatus$",
	},
	{
		name: "election/R2", breaks: "an unread leadership is delivered after its end",
		file: "election.go",
		edits: []edit{
			{`		e.candidacy.Retract(interim)
`, `		_ = interim
`},
		},
		tests: ". -run ^TestElection_RetractsUnreadLeadershipAfterLoss$",
	},
	{
		name: "election/next", breaks: "a status does not say that the candidate is next",
		file: "election.go",
		edits: []edit{
			{", Next: s.Next})", "})"},
		},
		tests: ". -run ^TestStatus_NextIsTrueOnlyForSecondCandidate$",
	},
	{
		name: "election/former", breaks: "the status of a leader does not say how the former leadership has ended",
		file: "candidacy.go",
		edits: []edit{
			{"former := c.former", "var former error"},
		},
		tests: ". -run ^TestCandidacy_SetsFormerErrOnlyInStatusOfLeader$",
	},
	{
		name: "election/transfer-order", breaks: "a transfer requests the leader to resign before the others that are ahead",
		file: "resign/transfer.go",
		edits: []edit{
			{"candidates[ahead-1].ID", "candidates[0].ID"},
		},
		tests: "./resign -run ^TestQueue_TransferAsksLeaderLast$",
	},
	{
		name: "election/prefer-period", breaks: "a candidate with a higher priority replaces a leader at once",
		file: "resign/prefer.go",
		edits: []edit{
			{"time.Since(since) >= period", "time.Since(since) >= 0"},
		},
		tests: "./resign -run ^TestQueue_PreferMakesHighestPriorityLead$",
	},
	{
		name: "election/prefer-token", breaks: "a leadership counts from an earlier one of a candidate with the same ID",
		file: "resign/transfer.go",
		edits: []edit{
			{"a.ID == b.ID && a.Token == b.Token", "a.ID == b.ID"},
		},
		tests: "./adapters/changefeed -run ^TestQueue_PreferWaitsAgainAfterNewLeadership$",
	},
	{
		name: "election/prefer-leader", breaks: "a candidate with a higher priority replaces a leader that it has not observed",
		file: "resign/transfer.go",
		edits: []edit{
			{"leader.ID != \"\" && !isSameLeadership(candidates[0], leader)", "false"},
		},
		tests: "./resign -run ^TestQueue_PreferSparesNewLeader$",
	},
	{
		name: "election/prefer-equal", breaks: "a candidate replaces a leader of the same or a higher priority",
		file: "resign/prefer.go",
		edits: []edit{
			{"best.ID == candidates[0].ID", "len(candidates) == 1"},
			{"slices.MaxFunc(candidates, ", "slices.MaxFunc(candidates[len(candidates)-1:], "},
		},
		tests: "./resign -run ^TestQueue_PreferMakesHighestPriorityLead$",
	},
	{
		name: "election/A1", breaks: "a request to resign overwrites one that was made in between",
		file: "resign/resign.go",
		edits: []edit{
			{"r.conn.Set(r.node, data, stat.Version)", "r.conn.Set(r.node, data, stat.Version*0-1)"},
		},
		tests: "./resign -run ^TestRequest_ConcurrentCallsDoNotOverwrite$",
	},
	{
		name: "watch/H1", breaks: "a reader does not read again after a reconnect",
		file: "internal/zk/watch/reader.go",
		edits: []edit{
			{"case state.Up && (r.isOlder(state) || second.isOlder(state)):", "case false:"},
		},
		tests: "./internal/zk/watch .",
	},
	{
		name: "watch/rC7", breaks: "a pooled watch that has fired is used",
		file: "internal/zk/watch/pool.go",
		edits: []edit{
			{"if w != nil && w.fired() {", "if false {"},
		},
		tests: "./internal/zk/watch",
	},
	{
		name: "candidacy/revoke", breaks: "the leadership continues after the candidacy",
		file: "candidacy.go",
		edits: []edit{
			{"revoke := c.takeCurrent(); revoke != nil {", "revoke := c.takeCurrent(); false {\n_ = revoke"},
		},
		tests: ". -run TestCandidacy_ReportsReasonOfEnd$",
	},
	{
		name: "candidacy/vacated", breaks: "a predecessor that was not the leader counts as a hand-over",
		file: "candidacy.go",
		edits: []edit{
			{"	if s.NowFollowing != \"\" {", "	if false {"},
		},
		tests: ". -run ^TestEvents_OmitsHandOverWithoutNotification$",
	},
	{
		name: "events/order", breaks: "a new event is dropped, and not the oldest",
		file: "streams.go",
		edits: []edit{
			{"		case s.c <- e:\n			return\n		default:\n		}\n", "		case s.c <- e:\n			return\n		default:\n			s.missed = e.Missed + 1\n			return\n		}\n"},
		},
		tests: ". -run ^TestEventStream_DropsOldestEvents$",
	},
	{
		name: "events/frequent", breaks: "checks displace other events",
		file: "streams.go",
		edits: []edit{
			{"if isFrequent(e.Kind) && len(s.c) >= maxFrequent {", "if false {"},
		},
		tests: ". -run ^TestEventStream_DropsFrequentEventsFirst$",
	},
	{
		name: "events/resumed", breaks: "a resumed leadership is reported as a new one",
		file: "streams.go",
		edits: []edit{
			{"s.token == e.Token:", "s.token != e.Token:"},
		},
		tests: ". -run ^TestEvents_ReportsSuspensionAndResumption$",
	},
	{
		name: "candidacy/once", breaks: "the last reason counts",
		file: "candidacy.go",
		edits: []edit{
			{"	first := !c.over.Load()\n", "	first := !c.over.Load()\n	c.err = reason\n"},
		},
		tests: ". -run TestCandidacy_ReportsReasonOfEnd$",
	},
	{
		name: "candidacy/skipped", breaks: "a candidacy that was stopped can start",
		file: "candidacy.go",
		edits: []edit{
			{"c.skipped = c.skipped || !c.called", "c.skipped = false"},
		},
		tests: ". -run TestCandidacy_StopBeforeRunSkipsAlgorithm$",
	},
	{
		name: "candidacy/parent", breaks: "the candidacy continues after the user's context is done",
		file: "candidacy.go",
		edits: []edit{
			{"c.release = context.AfterFunc(ctx, func() { c.stop(ErrResigned) })", "_ = 0"},
		},
		tests: ". -run TestCandidacy_ReportsReasonOfEnd$",
	},
	{
		name: "candidacy/late", breaks: "leaderships begin after the end of the candidacy",
		file: "candidacy.go",
		edits: []edit{
			{"	if over {\n		revoke(c.reason())", "	if false {\n		revoke(c.reason())"},
		},
		tests: ". -run TestCandidacy_CallsAfterEndHaveNoEffect$",
	},
	{
		name: "candidacy/goroutines", breaks: "goroutines outlive the candidacy",
		file: "candidacy.go",
		edits: []edit{
			{"	c.mu.Unlock()\n	c.children.Wait()", "	c.mu.Unlock()"},
		},
		tests: ". -run TestCandidacy_StopWaitsForGoroutines",
	},
	{
		name: "candidacy/clock", breaks: "Current reports a leader whose lease has expired",
		file: "candidacy.go",
		edits: []edit{
			{"s.Leadership != nil && s.Leadership.Err() != nil", "false"},
		},
		tests: ". -run ^TestCandidacy_CurrentReportsExpiredLeaderAsSuspended$",
	},
	{
		name: "candidacy/attempts", breaks: "two attempts to end an election at a time",
		file: "candidacy.go",
		edits: []edit{
			{"if a.newest != nil && (!isClosed", "if false && (!isClosed"},
		},
		tests: ". -run TestAttempts_RunOneAtATime|TestCandidacy_ContinuesIfElectionCannotBeEnded$",
	},
	{
		name: "elector/in-use", breaks: "a call of Lead uses the candidate of another call",
		file: "elector/candidacy.go",
		edits: []edit{
			{"	return !used\n", "	return !used || true\n"},
		},
		tests: "./elector -run ^TestLead_RejectsUsedCandidate$",
	},
	{
		name: "elector/second-signal", breaks: "the end command runs after the signal that ends elector immediately",
		file: "cmd/elector/handlers.go",
		edits: []edit{
			{"if r.exiting.Load() {", "if false {"},
		},
		tests: "./cmd/elector -run ^TestRun_StartsNoCommandAfterSecondSignal$",
	},
	{
		name: "election/container", breaks: "an election node that is deleted before the candidate joins is not created again",
		file: "election.go",
		edits: []edit{
			{"cfg.QueueMayVanish = e.createNode &&", "cfg.QueueMayVanish = false &&"},
		},
		tests: ". -run ^TestWithCreateNode_RecreatesNodeDeletedBeforeJoin$",
	},
	{
		name: "election/container/tried", breaks: "a candidate that has joined before creates an ended election again",
		file: "election.go",
		edits: []edit{
			{"e.createNode && !seen.tried", "e.createNode"},
		},
		tests: ". -run ^TestWithCreateNode_RecreatesNodeDeletedBeforeJoin$",
	},
	{
		name: "election/container/ending", breaks: "a candidate creates the node again that its EndElection deletes",
		file: "election.go",
		edits: []edit{
			{"seen.czxid == 0 && e.isEnding()", "false"},
		},
		tests: ". -run ^TestWithCreateNode_RecreatesNodeDeletedBeforeJoin$",
	},
	{
		name: "elector/rejected", breaks: "Lead receives the statuses of a candidate that other code has started",
		file: "elector/candidacy.go",
		edits: []edit{
			{"	if !isFresh && l.leaveIfAlreadyStarted() {", "	if _ = isFresh; false && l.leaveIfAlreadyStarted() {"},
		},
		tests: "./elector -run ^TestLead_RejectsUsedCandidate$",
	},
	{
		name: "election/watch-left", breaks: "the watch for resign requests remains after the candidate has left",
		file: "resign.go",
		edits: []edit{
			{"	if !watch.OnData(e.conn, e.node) {", "	if true || !watch.OnData(e.conn, e.node) {"},
		},
		tests: ". -run ^TestResignRequested_LeavesNoWatches$",
	},
	{
		name: "election/watch-herd", breaks: "each departure fires the watches of any number of candidates",
		file: "resign.go",
		edits: []edit{
			{"ok && found.Stat.NumChildren <= removalLimit", "ok"},
		},
		tests: ". -run ^TestResignRequested_RemovesWatchOfElectionNode$",
	},
	{
		name: "election/watch-foreign", breaks: "a candidate that leaves writes data of another application",
		file: "resign.go",
		edits: []edit{
			{"return ok && found.Stat.NumChildren", "return (ok || true) && found.Stat.NumChildren"},
		},
		tests: ". -run ^TestResignRequested_RemovesWatchOfElectionNode$",
	},
}
