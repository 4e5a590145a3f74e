package main

// changefeedMutants break rules of elections by changefeed.
var changefeedMutants = []mutant{
	{
		name: "changefeed/unreachable", breaks: "NewElection does not return ErrUnreachable if the server refuses connections",
		file:  "adapters/changefeed/election.go",
		edits: []edit{{"err = unreachable{err}", "_ = unreachable{err}"}},
		tests: "./adapters/changefeed -run ^TestNewElection_CanBeCalledAgainAfterFailure$",
	},
	{
		name: "changefeed/unreachable-closed", breaks: "NewElection returns ErrUnreachable if the store is closed",
		file:  "adapters/changefeed/election.go",
		edits: []edit{{"!errors.Is(err, ErrUnsuitable) && !errors.Is(err, ErrClosed) &&", "!errors.Is(err, ErrUnsuitable) &&"}},
		tests: "./adapters/changefeed -run ^TestNewElection_CanBeCalledAgainAfterFailure$",
	},
	{
		name: "sqlfence/smaller", breaks: "a fence accepts a smaller token",
		file: "sqlfence/sqlfence.go",
		edits: []edit{
			{" WHERE f.token <= excluded.token", ""},
		},
		tests: "./adapters/changefeed/postgres -run ^TestFence_",
	},
	{
		name: "sqlfence/mysql-smaller", breaks: "a fence on MySQL accepts a smaller token",
		file: "sqlfence/sqlfence.go",
		edits: []edit{
			{" AND token <= ?", " AND ? IS NOT NULL"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestFence_",
	},
	{
		name: "sqlfence/mysql-uses", breaks: "the second transaction of a holder does not change the row of a fence on MySQL",
		file: "sqlfence/sqlfence.go",
		edits: []edit{
			{", uses = uses + 1 WHERE", " WHERE"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestFence_GuardRejectsSmallerTokenAndEndedGrant$",
	},
	{
		name: "sqlfence/ended", breaks: "a fence accepts a grant that has ended",
		file: "sqlfence/sqlfence.go",
		edits: []edit{
			{"	err := g.Err()\n	if err == nil {", "	var err error\n	if err == nil {"},
			{"		err = g.Err() // the grant may have ended during the wait\n", ""},
		},
		tests: "./adapters/changefeed/postgres -run ^TestFence_GuardRejectsSmallerTokenAndEndedGrant$",
	},
	{
		name: "changefeed/id-limit", breaks: "an ID may be longer than stores can keep",
		file: "adapters/changefeed/options.go",
		edits: []edit{
			{"case len(id) > MaxID:", "case false:"},
		},
		tests: "./adapters/changefeed -run TestTransfer_RejectsTooLongID",
	},
	{
		name: "changefeed/transfer-outcome", breaks: "Transfer reports success although another candidate leads",
		file: "adapters/changefeed/transfer.go",
		edits: []edit{
			{"case r.Leader == id:", "case r.Leader == id, r.Nominee == \"\":"},
		},
		tests: "./adapters/changefeed -run TestTransfer_ReportsFailureAndLeavesLeader",
	},
	{
		name: "changefeed/transfer-listens", breaks: "the next leader begins while the program of the former one, which hands over itself, still works",
		file: "adapters/changefeed/internal/protocol/request.go",
		edits: []edit{
			{"	case m.in.Listens:\n", "	case false:\n"},
		},
		tests: "./adapters/changefeed -run ^TestTransfer_ListeningLeaderStopsAtResign$",
	},
	{
		name: "changefeed/transfer-target", breaks: "the heartbeats of a leader that hands over remove the transfer target",
		file: "adapters/changefeed/internal/protocol/request.go",
		edits: []edit{
			{"// other candidates wait for this time\n	if next.Nominee == m.cfg.ID {", "// Others rely on it.\n	if true {"},
		},
		tests: "./adapters/changefeed -run ^TestTransfer_ListeningLeaderStopsAtResign$",
	},
	{
		name: "changefeed/release-guard", breaks: "the next leader begins while the program of a leader whose feed has failed still stops",
		file: "adapters/changefeed/internal/protocol/step.go",
		edits: []edit{
			{"			m.ReleaseAt = m.Deadline", "			m.ReleaseAt = 0"},
		},
		tests: "./adapters/changefeed/internal/protocol -run ^TestFeed_FailureStopsClaimsAndLeadership$",
	},
	{
		name: "changefeed/transfer-errors", breaks: "Transfer ends because of an error that passes, and its request remains",
		file: "adapters/changefeed/transfer.go",
		edits: []edit{
			{"r, err = updateRecord(o.ctx, o, store, func(*Record) bool { return false })", "r, err = tryUpdate(o.ctx, o, store, func(*Record) bool { return false })"},
		},
		tests: "./adapters/changefeed -run ^TestTransfer_RetriesTransientErrors$",
	},
	{
		name: "changefeed/transfer-replaced", breaks: "Transfer does not notice that another request has replaced its own",
		file: "adapters/changefeed/transfer.go",
		edits: []edit{
			{"case r.Nominee != \"\" && r.Nominee != id:", "case false:"},
		},
		tests: "./adapters/changefeed -run TestTransfer",
	},
	{
		name: "changefeed/transfer-withdraw", breaks: "Transfer does not withdraw its request when its context is done",
		file: "adapters/changefeed/transfer.go",
		edits: []edit{
			{"withdrawn := r.Nominee == id", "withdrawn := false"},
		},
		tests: "./adapters/changefeed -run TestTransfer_RemovesRequestIfContextIsDone",
	},
	{
		name: "changefeed/prefer-ready", breaks: "a candidate that cannot lead requests the leadership",
		file: "adapters/changefeed/queue.go",
		edits: []edit{
			{" && e.ready.Load()", ""},
		},
		tests: "./adapters/changefeed -run ^TestQueue_PreferRequestsNothingWithoutFeed$",
	},
	{
		name: "changefeed/prefer-leader", breaks: "a request replaces another leader than the one that was observed",
		file: "adapters/changefeed/transfer.go",
		edits: []edit{
			{"r.Leader != from.Leader || ", ""},
		},
		tests: "./adapters/changefeed -run ^TestQueue_RequestReplacesOnlyGivenLeader$",
	},
	{
		name: "changefeed/prefer-term", breaks: "a request replaces a later leadership of the leader that was observed",
		file: "adapters/changefeed/transfer.go",
		edits: []edit{
			{" || r.Term != from.Term", ""},
		},
		tests: "./adapters/changefeed -run ^TestQueue_RequestReplacesOnlyGivenLeader$",
	},
	{
		name: "changefeed/prefer-transfer", breaks: "a request replaces the target of a transfer",
		file: "adapters/changefeed/transfer.go",
		edits: []edit{
			{" || r.Nominee != \"\") {", ") {"},
		},
		tests: "./adapters/changefeed -run ^TestQueue_RequestReplacesOnlyGivenLeader$",
	},
	{
		name: "changefeed/prefer-passing", breaks: "an error of the store ends Prefer",
		file: "adapters/changefeed/queue.go",
		edits: []edit{
			{"return unreachable{err}", "return err"},
		},
		tests: "./adapters/changefeed -run ^TestQueue_ContainsCandidatesThatCanTakeOver$",
	},
	{
		name: "changefeed/next", breaks: "each follower is the target of a transfer",
		file: "adapters/changefeed/runner.go",
		edits: []edit{
			{"current.Nominee == cfg.ID", "current.Nominee != \"\""},
		},
		tests: "./adapters/changefeed -run ^TestElection_NextIsTrueOnlyForTransferTarget$",
	},
	{
		name: "changefeed/former-claim", breaks: "a record that was released without a leadership counts as a resignation",
		file: "adapters/changefeed/former.go",
		edits: []edit{
			{"record.Released() && record.Term == f.renewed", "record.Released()"},
		},
		tests: "./adapters/changefeed -run ^TestElection_FormerErrTellsHowFormerLeaderLeft$",
	},
	{
		name: "changefeed/former-own", breaks: "the candidate's own claim without a leadership counts as one whose lease has expired",
		file: "adapters/changefeed/former.go",
		edits: []edit{
			{"case record.Session == session && record.Term != f.led:", "case false:"},
		},
		tests: "./adapters/changefeed -run ^TestElection_FormerErrIgnoresUnacknowledgedClaim$",
	},
	{
		name: "changefeed/hint-read", breaks: "a hint is not followed by a read",
		file: "adapters/changefeed/internal/protocol/request.go",
		edits: []edit{
			{"if m.Hinted {", "if false {"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestObserveHint_Heartbeat",
	},
	{
		name: "changefeed/hint-flag", breaks: "a hint counts as a read",
		file: "adapters/changefeed/internal/protocol/observe.go",
		edits: []edit{
			{"m.Current, m.Hinted, m.ClaimAt = r, true,", "m.Current, m.Hinted, m.ClaimAt = r, false,"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestObserveHint_Heartbeat",
	},
	{
		name: "changefeed/hint-other", breaks: "a hint that is not a heartbeat changes the record",
		file: "adapters/changefeed/internal/protocol/observe.go",
		edits: []edit{
			{"!m.Known || r != next || r.Leader == \"\"", "!m.Known || r.Leader == \"\""},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestObserveHint_OtherThanHeartbeat",
	},
	{
		name: "changefeed/same-sequence", breaks: "a read does not correct a false hint",
		file: "adapters/changefeed/internal/protocol/observe.go",
		edits: []edit{
			{"r.Seq == m.Current.Seq && (!m.Hinted || m.confirmHint(r))", "r.Seq == m.Current.Seq"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestObserveHint_FalseHintIsDropped",
	},
	{
		name: "changefeed/confirmed-hint", breaks: "a record that confirms a hint restarts the wait",
		file: "adapters/changefeed/internal/protocol/observe.go",
		edits: []edit{
			{"(!m.Hinted || m.confirmHint(r))", "!m.Hinted"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestObserveHint_ConfirmationDoesNotRestartWait",
	},
	{
		name: "changefeed/late-claim", breaks: "a claim whose response is late grants leadership",
		file: "adapters/changefeed/internal/protocol/response.go",
		edits: []edit{
			{"!isMine || m.in.Late || m.Over", "!isMine || m.Over"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestClaim_LateResponseDoesNotMakeLeader",
	},
	{
		name: "changefeed/stop-guard", breaks: "a claim grants leadership within the safety margin",
		file: "adapters/changefeed/internal/protocol/response.go",
		edits: []edit{
			{"m.now < m.SentAt+m.cfg.Lease-m.cfg.Guard", "m.now < m.SentAt+m.cfg.Lease"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestClaim_MakesNoLeaderIfAcknowledgedTooLate",
	},
	{
		name: "changefeed/deadline", breaks: "a lease is measured from the response",
		file: "adapters/changefeed/internal/protocol/response.go",
		edits: []edit{
			{"m.Deadline, m.RenewedAt, m.LostClaims = m.SentAt+m.cfg.Lease, m.SentAt, 0", "m.Deadline, m.RenewedAt, m.LostClaims = m.now+m.cfg.Lease, m.SentAt, 0"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestLeader_LeaseStartsAtRequest",
	},
	{
		name: "changefeed/clock-rates", breaks: "different rates of clocks are not taken into account",
		file: "adapters/changefeed/internal/protocol/step.go",
		edits: []edit{
			{"math.Ceil(m.cfg.Kappa*float64(ttl))", "math.Ceil(float64(ttl))"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestRestoredState_WaitsForLongestLostLease",
	},
	{
		name: "changefeed/held-ttl", breaks: "a candidate does not wait for the longer lease of another candidate",
		file: "adapters/changefeed/internal/protocol/response.go",
		edits: []edit{
			{"max(m.cfg.Lease, m.TTL)", "m.cfg.Lease"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestRestoredState_WaitsForLongestLostLease",
	},
	{
		name: "changefeed/superseded", breaks: "a leader does not notice a later term",
		file: "adapters/changefeed/internal/protocol/observe.go",
		edits: []edit{
			{"r.Session != m.cfg.Session || r.Term != m.Term)", "r.Session != m.cfg.Session)"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestObserve_StopsLeaderIfRecordIsReplaced",
	},
	{
		name: "changefeed/claim-without-feed", breaks: "a candidate without a feed claims",
		file: "adapters/changefeed/internal/protocol/request.go",
		edits: []edit{
			{"case m.FeedWorks && m.mayClaim():", "case m.mayClaim():"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestFeed_FailureStopsClaimsAndLeadership",
	},
	{
		name: "changefeed/feed-deadline", breaks: "a leader continues without a feed for any time",
		file: "adapters/changefeed/internal/protocol/step.go",
		edits: []edit{
			{"if m.Leading && !m.FeedWorks && ", "if false && "},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestFeed_FailureStopsClaimsAndLeadership",
	},
	{
		name: "changefeed/feed-returns", breaks: "a leader stops although its feed returns within the lease",
		file: "adapters/changefeed/internal/protocol/feed.go",
		edits: []edit{
			{"m.FeedDeadline = m.now + m.cfg.Lease", "m.FeedDeadline = m.now"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestFeed_FailureStopsClaimsAndLeadership",
	},
	{
		name: "changefeed/term", breaks: "terms decrease after an older record returns",
		file: "adapters/changefeed/internal/protocol/request.go",
		edits: []edit{
			{"Term: m.GreatestTerm + 1, TTL", "Term: m.Current.Term + 1, TTL"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestRestoredState_WaitsForLongestLostLease",
	},
	{
		name: "changefeed/last-term", breaks: "terms are not bounded",
		file: "adapters/changefeed/internal/protocol/request.go",
		edits: []edit{
			{"if m.GreatestTerm >= MaxTerm {", "if false {"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestClaim_IsNotSentBeyondLastTerm",
	},
	{
		name: "changefeed/leave-without-read", breaks: "a candidate leaves although its claim may have been applied",
		file: "adapters/changefeed/internal/protocol/request.go",
		edits: []edit{
			{"m.Op != None || m.MustRead || !m.Known", "m.Op != None || !m.Known"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestResign_ReadsRecordAfterConflict",
	},
	{
		name: "changefeed/expected-write", breaks: "a later write extends the time in which a feed must deliver an earlier one",
		file: "adapters/changefeed/internal/protocol/feed.go",
		edits: []edit{
			{"if m.ExpectedSeq == 0 && (m.FeedEpoch", "if (m.FeedEpoch"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestFeed_KeepsTimeLimitForExpectedWrite",
	},
	{
		name: "changefeed/feed-hint", breaks: "a feed delivers any message as a hint",
		file: "adapters/changefeed/store/feed.go",
		edits: []edit{
			{"e.Hint && f.isNextHeartbeat(e.Record) ||", "e.Hint ||"},
		},
		tests: "./adapters/changefeed/store -run TestFeed_HintOtherThanHeartbeatCausesRead",
	},
	{
		name: "changefeed/feed-proof", breaks: "a feed does not deliver a read that confirms a hint",
		file: "adapters/changefeed/store/feed.go",
		edits: []edit{
			{"case !f.started || f.last.Hint:", "case !f.started:"},
		},
		tests: "./adapters/changefeed/store -run TestFeed_ReadThatConfirmsHintIsDelivered",
	},
	{
		name: "changefeed/feed-quiet", breaks: "a feed trusts a silent watch",
		file: "adapters/changefeed/store/feed.go",
		edits: []edit{
			{"			err = f.checkWatch()\n", "			err = nil\n"},
		},
		tests: "./adapters/changefeed/store -run TestFeed_HintIsDeliveredWithoutRead$",
	},
	{
		name: "changefeed/lost-claims", breaks: "claims that are not acknowledged are not limited",
		file: "adapters/changefeed/internal/protocol/request.go",
		edits: []edit{
			{"return m.LostClaims >= maxLostClaims", "return false"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestClaim_UnacknowledgedLetsOthersLead",
	},
	{
		name: "changefeed/lost-claims-released", breaks: "a candidate that yields claims the record that it has released",
		file: "adapters/changefeed/internal/protocol/request.go",
		edits: []edit{
			{"m.Current.Released() && !m.isTransferring() && !m.mustYield() ||", "m.Current.Released() && !m.isTransferring() ||"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestClaim_UnacknowledgedLetsOthersLead",
	},
	{
		name: "changefeed/lost-heartbeats", breaks: "a leader whose heartbeats are never acknowledged claims the record again and again",
		file: "adapters/changefeed/internal/protocol/step.go",
		edits: []edit{
			{"if r == Expired || r == RecordLost {", "if false {"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestClaim_UnacknowledgedLetsOthersLead",
	},
	{
		name: "changefeed/own-ttl", breaks: "a leader keeps a TTL that was edited by hand",
		file: "adapters/changefeed/internal/protocol/request.go",
		edits: []edit{
			{"next.TTL = m.cfg.Lease // other candidates wait for this time", "// Others rely on TTL."},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestLeader_ReplacesEditedTTL",
	},
	{
		name: "changefeed/redis-publish", breaks: "a write that cannot be published changes the record",
		file: "adapters/changefeed/redis/record.go",
		edits: []edit{
			{"redis.call('PUBLISH', ARGV[1], time .. ' ' .. ARGV[4])\n", ""},
			{"'ttl', ARGV[12], 'ended', ARGV[13], 'time', time)\n", "'ttl', ARGV[12], 'ended', ARGV[13], 'time', time)\nredis.call('PUBLISH', ARGV[1], time .. ' ' .. ARGV[4])\n"},
		},
		tests: "./adapters/changefeed/redis -run TestHeartbeat_ForbiddenPublishChangesNothing",
	},
	{
		name: "changefeed/edited-ttl", breaks: "followers wait for a TTL that was edited by hand",
		file: "adapters/changefeed/internal/protocol/observe.go",
		edits: []edit{
			{"case !m.TTLRepeated:", "case true:"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestObserve_LimitsEffectOfEditedTTL",
	},
	{
		name: "changefeed/lowered-ttl", breaks: "a follower claims before the lease ends if the TTL was edited to a smaller value",
		file: "adapters/changefeed/internal/protocol/observe.go",
		edits: []edit{
			{"m.TTL = max(m.TTL, r.TTL)", "m.TTL = r.TTL"},
			{"r.TTL == last.TTL && r.TTL >= m.TTL", "r.TTL == last.TTL"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestObserve_LimitsEffectOfEditedTTL",
	},
	{
		name: "changefeed/corrected-ttl", breaks: "a follower ignores the lease of the leader if the first TTL that it observes was edited",
		file: "adapters/changefeed/internal/protocol/observe.go",
		edits: []edit{
			{"m.TTL, m.TTLRepeated = r.TTL, false", "m.TTL, m.TTLRepeated = r.TTL, true"},
		},
		tests: "./adapters/changefeed/internal/protocol -run TestObserve_LimitsEffectOfEditedTTL",
	},
	{
		name: "changefeed/postgres-fallbacks", breaks: "with a TLS configuration only the first server is tried",
		file: "adapters/changefeed/storeurl/postgres.go",
		edits: []edit{
			{"cfg.Fallbacks = append(cfg.Fallbacks, f)", ""},
		},
		tests: "./adapters/changefeed/storeurl -run TestOpen_SendsOnlyTLSHandshake",
	},
	{
		name: "changefeed/poll-retry", breaks: "one failed read ends the feed of a polled store",
		file: "adapters/changefeed/store/poll.go",
		edits: []edit{
			{"case attempt == readAttempts:", "case true:"},
		},
		tests: "./adapters/changefeed/store -run TestPoll_ThirdFailedReadEndsFeed",
	},
	{
		name: "changefeed/poll-limit", breaks: "a polled store with a long interval does not repeat failed reads",
		file: "adapters/changefeed/store/poll.go",
		edits: []edit{
			{"p.feeds.readLimit = 0", "p.feeds.readLimit = minEstablishLimit"},
		},
		tests: "./adapters/changefeed/store -run TestPoll_ThirdFailedReadEndsFeed",
	},
	{
		name: "changefeed/postgres-pool", breaks: "heartbeats wait for connections that the program's queries occupy",
		file: "adapters/changefeed/postgres/shared.go",
		edits: []edit{
			{"if s.reserved != nil {\n\t\treturn s.reserved, nil", "if true {\n\t\treturn s.pool, nil"},
		},
		tests: "./adapters/changefeed/postgres -run TestStore_LimitsConnectionsAndKeepsPoolOpen",
	},
	{
		name: "changefeed/postgres-probe", breaks: "heartbeats fail if the program's pool cannot connect",
		file: "adapters/changefeed/postgres/shared.go",
		edits: []edit{
			{"case errors.Is(err, puddle.ErrClosedPool):", "case errors.Is(err, puddle.ErrClosedPool), err != nil:"},
		},
		tests: "./adapters/changefeed/postgres -run TestHeartbeat_NeedsNoNewConnectionsOfPool",
	},
	{
		name: "changefeed/postgres-unused", breaks: "the listening connection stays open after all elections have ended",
		file: "adapters/changefeed/postgres/listen.go",
		edits: []edit{
			{"unused := due && len(requested) == 0 && len(l.channels) == 0", "unused := false"},
		},
		tests: "./adapters/changefeed/postgres -run TestStore_ClosesUnusedConnections",
	},
	{
		name: "changefeed/postgres-idle", breaks: "the server ends the listening session when it is idle",
		file: "adapters/changefeed/postgres/shared.go",
		edits: []edit{
			{"IN ('idle_session_timeout', 'lock_timeout')", "IN ('lock_timeout')"},
		},
		tests: "./adapters/changefeed/postgres -run TestFeed_IdleSessionIsKept",
	},
	{
		name: "changefeed/postgres-pooler-settings", breaks: "a store behind a pooler changes settings of sessions that others use",
		file: "adapters/changefeed/postgres/shared.go",
		edits: []edit{
			{"if s.polled { // Change no setting", "if false { // Change no setting"},
		},
		tests: "./adapters/changefeed/postgres -run ^TestPgBouncer_KeepsSettingsOfSessions$",
	},
	{
		name: "changefeed/postgres-pooler-prepared", breaks: "a store behind a pooler uses prepared statements",
		file: "adapters/changefeed/postgres/shared.go",
		edits: []edit{
			{"		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec\n", ""},
		},
		tests: "./adapters/changefeed/postgres -run ^TestPgBouncer_StoreSatisfiesContract$",
	},
	{
		name: "changefeed/postgres-pooler-rejected", breaks: "Start accepts a pooler that delivers no notifications",
		file: "adapters/changefeed/postgres/start.go",
		edits: []edit{
			{"if s.polled != nil {", "if true {"},
		},
		tests: "./adapters/changefeed/postgres -run ^TestPgBouncer_IsRejectedWithoutPoll$",
	},
	{
		name: "changefeed/postgres-commit", breaks: "a write is acknowledged before its transaction was committed",
		file: "adapters/changefeed/postgres/store.go",
		edits: []edit{
			{"return cmp.Or(err, replies.Close())", "_ = replies.Close()\n\treturn cmp.Or(err)"},
		},
		tests: "./adapters/changefeed/postgres -run ^TestHeartbeat_FailsIfCommitFails$",
	},
	{
		name: "changefeed/postgres-lock", breaks: "requests wait at the server for locked rows until their context is done",
		file: "adapters/changefeed/postgres/store.go",
		edits: []edit{
			{"const maxLockLimit = 500 * time.Millisecond", "const maxLockLimit = time.Hour"},
		},
		tests: "./adapters/changefeed/postgres -run ^TestStore_LimitsWaitForLocksOfOtherClients$/^Row$",
	},
	{
		name: "changefeed/postgres-table-lock", breaks: "a new connection waits for a locked table until the context of its request is done",
		file: "adapters/changefeed/postgres/shared.go",
		edits: []edit{
			{"IN ('idle_session_timeout', 'lock_timeout')", "IN ('idle_session_timeout')"},
		},
		tests: "./adapters/changefeed/postgres -run ^TestStore_LimitsWaitForLocksOfOtherClients$/^Table$",
	},
}
