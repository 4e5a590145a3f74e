package main

// sessionMutants break rules of sessions and their leases.
var sessionMutants = []mutant{
	{
		name: "session/L1", breaks: "leases have no margin of an eighth of the timeout",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"return newest.Add(min(l.timeout/2, l.timeout-l.timeout/8-gap))", "return newest.Add(min(l.timeout/2, l.timeout-gap))"},
		},
		tests: "./internal/zk/connection -run ^TestLease_CountsChainFromAcknowledgements$",
	},
	{
		name: "session/L2", breaks: "a single proof is worth half a timeout",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"return newest.Add(l.timeout / 3)", "return newest.Add(l.timeout / 2)"},
		},
		tests: "./internal/zk/connection -run ^TestLease_CountsChainFromAcknowledgements$",
	},
	{
		name: "session/L3", breaks: "leases are longer than half a timeout",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"return newest.Add(min(l.timeout/2, l.timeout-l.timeout/8-gap))", "return newest.Add(l.timeout*7/8 - gap)"},
		},
		tests: "./internal/zk/connection -run ^TestLease_DeadlineFollowsProofs$",
	},
	{
		name: "session/L4", breaks: "a pause of the process does not invalidate a single proof",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"if !l.paused.IsZero() && since(l.paused, newest) < l.timeout*7/12 {", "if false {"},
		},
		tests: "./internal/zk/connection -run ^TestLease_EndsBeforeSessionAtAnyLatency$",
	},
	{
		name: "session/L5", breaks: "leases expire only by the monotonic clock",
		file: "candidacy/limit/limit.go",
		edits: []edit{
			{"return max(b.Sub(a), b.Round(0).Sub(a.Round(0)))", "return b.Sub(a)"},
		},
		tests: ". -run ^TestLeadership_ExpiresByEitherClock$",
	},
	{
		name: "session/S3", breaks: "a check of another session counts as a proof",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{`	if m.seen.Session != r.session {
		return ErrSessionExpired // the result may be a proof for the earlier session
	}
`, ""},
		},
		equivalent: "the contender compares the session again before the grant",
	},
	{
		name: "session/S5", breaks: "a lease that expires soon is reported as proven",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{"v.proven = !limit.Expired(deadline.Add(-timeout/4), now)", "v.proven = true"},
		},
		tests: ". -run ^TestLeadership_BeginsAfterEndOfPrevious$",
	},
	{
		name: "session/S6", breaks: "expirations of the lease are not counted",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{`			v.lapses++
`, ""},
		},
		tests: "./internal/zk/connection -run ^TestMonitor_CountsLapseBeforeRenewal$",
	},
	{
		name: "session/prove-short", breaks: "a leadership begins with a lease that ends before it can be renewed",
		file: "internal/zk/connection/subscription.go",
		edits: []edit{
			{"alone && limit.Expired(m.lease.deadline().Add(-m.lease.timeout/4), now)", "alone && limit.Expired(m.lease.deadline(), now)"},
		},
		tests: "./internal/zk/connection -run ^TestProve_ContinuesUnusedLease$",
	},
	{
		name: "session/prove-again", breaks: "a candidate awaits a check although its session has a valid lease",
		file: "internal/zk/connection/subscription.go",
		edits: []edit{
			{"alone && limit.Expired(m.lease.deadline().Add(-m.lease.timeout/4), now)", "alone"},
		},
		tests: "./internal/zk/connection -run ^TestProve_ContinuesUnusedLease$",
	},
	{
		name: "session/S9", breaks: "a renewed lease hides its end",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{`	if err == nil {
		m.updateProven()
		m.lease.add`, `	if err == nil {
		m.lease.add`},
		},
		tests: "./internal/zk/connection -run ^TestMonitor_CountsLapseBeforeRenewal$",
	},
	{
		name: "session/C1", breaks: "a missing znode is not reported",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{`			missing = append(missing, paths[failed])
`, `			_ = missing
`},
		},
		tests: "./internal/zk/queue -run ^TestContender_NoticesChangesWhileDisconnected$",
	},
	{
		name: "session/lease-7-8", breaks: "a lease is seven eighths of the timeout from every proof: two leaders",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"return newest.Add(min(l.timeout/2, l.timeout-l.timeout/8-gap))", `_ = gap
	return newest.Add(l.timeout - l.timeout/8)`},
			{`newest := l.proofs[len(l.proofs)-1].sent
	return newest.Add(min(timeout/2, deadline.Sub(newest)))`, "return deadline"},
		},
		tests: "./internal/zk/queue -run ^TestElectionSchedules_HaveOneLeaderAtMost$ -schedules 400",
	},
	{
		name: "session/S8", breaks: "a pause of the process is not detected",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"limit.Elapsed(p.running, now) > longest", "limit.Elapsed(p.running, now) < 0"},
		},
		tests: "./internal/zk/connection -run TestPauseMonitor_LastPauseReturnsEndOfPause|TestMonitor_RequiresSecondProofAfterPause|TestPause_",
	},
	{
		name: "session/acked-sent", breaks: "a chain counts from the time at which a proof was sent",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"since(l.proofs[1].acked, sent) >=", "since(l.proofs[1].sent, sent) >="},
		},
		tests: "./internal/zk/connection -run TestLease_CountsChain",
	},
	{
		name: "session/acked-newest", breaks: "the newest link of a chain counts from its send time",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"since(l.proofs[0].acked, newest) <", "since(l.proofs[0].sent, newest) <"},
		},
		tests: "./internal/zk/connection -run TestLease_CountsChain|TestLease_EndsBeforeSessionAtAnyLatency",
	},
	{
		name: "session/interval-limit", breaks: "checks wait for longer than a quarter of the timeout",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"limit.Elapsed(l.proofs[len(l.proofs)-1].acked, now) >= min(interval, timeout/4)", "limit.Elapsed(l.proofs[len(l.proofs)-1].acked, now) >= interval"},
		},
		tests: "./internal/zk/connection -run TestLease_ContinuesWithChecksAtInterval",
	},
	{
		name: "session/interval-young", breaks: "checks wait for the interval while the lease ends",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{" || l.until(timeout).Sub(now) <= timeout*3/16", ""},
		},
		tests: "./internal/zk/connection -run TestLease_ContinuesWithChecksAtInterval",
	},
	{
		name: "session/interval-others", breaks: "the writes of other users replace checks of a znode",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{" || limit.Elapsed(last, now) >= timeout/2", ""},
		},
		tests: "./internal/zk/connection -run TestCheckInterval_ChecksZnodeDespiteOtherWrites",
	},
	{
		name: "session/interval-shortest", breaks: "the interval of the connection is not the shortest",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{`		if m.lease.due(m.timeout(s.stated), last, now, s.every) {
			return true
		}
	}
	return false`, `		if !m.lease.due(m.timeout(s.stated), last, now, s.every) {
			return false
		}
	}
	return true`},
		},
		tests: "./internal/zk/connection -run TestSubscription_UsesShortestCheckInterval",
	},
	{
		name: "session/stated", breaks: "WithSessionTimeout does not shorten leases",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"return newest.Add(min(timeout/2, deadline.Sub(newest)))", "return newest.Add(deadline.Sub(newest))"},
		},
		tests: "./internal/zk/connection -run ^TestSubscribe_GivesShorterLeaseForShorterTimeout$",
	},
	{
		name: "session/stated-shared", breaks: "a short WithSessionTimeout shortens the leases of the connection",
		file: "internal/zk/connection/subscription.go",
		edits: []edit{
			{"timeout := cmp.Or(m.granted, stated, AssumedTimeout)", "timeout := choose(stated, m.granted)"},
		},
		tests: "./internal/zk/connection -run ^TestSubscribe_GivesShorterLeaseForShorterTimeout$",
	},
	{
		name: "session/stated-brief", breaks: "a lock that is held briefly with a shorter timeout costs a check",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{"if limit.Elapsed(last, s.first) > 0 {", "if false {"},
		},
		tests: "./internal/zk/connection -run ^TestSubscribe_SendsNoCheckForBriefLease$",
	},
	{
		name: "session/pause", breaks: "a pause of the process does not shorten the lease",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"if !l.paused.IsZero() &&", "if false &&"},
		},
		tests: "./internal/zk/connection -run TestLease_EndsBeforeSessionAtAnyLatency",
	},
	{
		name: "session/turn", breaks: "breaks of the connection are missed with long timeouts",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"min(timeout/32, maxPollInterval)", "timeout/32"},
		},
		tests: "./internal/zk/connection -run TestMonitor_ChangesEpochAtEachBreak",
	},
	{
		name: "session/granted", breaks: "a lease is longer than the granted timeout allows",
		file: "internal/zk/connection/subscription.go",
		edits: []edit{
			{"return min(stated, granted)", "return stated"},
		},
		tests: "./internal/zk/connection -run TestTimeout_IsShorterOfGrantedAndConfigured$",
	},
	{
		name: "session/learnt", breaks: "a timeout that is granted later does not shorten the lease",
		file: "internal/zk/connection/znode.go",
		edits: []edit{
			{"granted > 0 && o.Timeout > granted", "false"},
		},
		tests: "./internal/zk/connection -run TestTimeout_IsAssumedUntilGranted",
	},
	{
		name: "session/reconnect", breaks: "a longer timeout extends the lease of earlier proofs",
		file: "internal/zk/connection/subscription.go",
		edits: []edit{
			{"timeout < m.lease.timeout || len(m.lease.proofs) == 0", "true"},
		},
		tests: "./internal/zk/connection -run TestTimeout_ChangesAfterReconnect",
	},
	{
		name: "session/L6", breaks: "a chain of T/16 is long enough",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"since(l.proofs[0].acked, newest) < l.timeout/4", "since(l.proofs[0].acked, newest) < l.timeout/16"},
		},
		tests: "./internal/zk/connection -run ^TestLease_CountsChainFromAcknowledgements$",
	},
	{
		name: "session/S1", breaks: "the lease of a session survives its end",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{`	if now.Session != before.Session {
		m.lease.clear()
`, `	if now.Session != before.Session {
`},
		},
		tests: ". -run ^TestLease_EndsWithSession$",
	},
	{
		name: "session/S2", breaks: "breaks of the connection are not counted",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{`		m.epoch = epochs.Add(1)
`, ""},
		},
		tests: "./internal/zk/connection -run ^TestMonitor_ChangesEpochAtEachBreak$",
	},
	{
		name: "session/S4", breaks: "a check counts from its reply instead of its request",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{"m.lease.add(r.sent, r.acked)", "m.lease.add(r.acked, r.acked)"},
		},
		tests: ". -run ^TestElectLeader_StaysSuspendedOnSlowConnection$",
	},
	{
		name: "session/S7", breaks: "an old write counts as a proof",
		file: "internal/zk/connection/subscription.go",
		edits: []edit{
			{"if limit.Elapsed(sent, now) < m.lease.timeout/3 {", "if true {"},
		},
		tests: "./internal/zk/connection -run ^TestProve_IgnoresOldWrite$",
	},
	{
		name: "session/S10", breaks: "proofs of a lease that has ended remain in the chain",
		file: "internal/zk/connection/subscription.go",
		edits: []edit{
			{"alone && limit.Expired(m.lease.deadline().Add(-m.lease.timeout/4), now)", "false"},
		},
		tests: "./internal/zk/connection -run ^TestProve_GrantsShortLeaseAfterLeaseEnds$",
	},
	{
		name: "session/S11", breaks: "no check is sent after a reconnect",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{`	if now.Up {
		m.checkNow = true
	}
`, ""},
		},
		tests: "./internal/zk/connection -run ^TestMonitor_ChecksSoonAfterReconnect$",
	},
	{
		name: "session/C2", breaks: "after one failure the other paths are not checked",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{"paths = slices.Delete(slices.Clone(paths), failed, failed+1)", "paths = slices.Clip(paths[:0])"},
		},
		tests: "./internal/zk/connection -run ^TestFindMissing_ReturnsAllMissingZnodes$",
	},
	{
		name: "session/close-ends-grants", breaks: "grants end after the owner of the connection has ended the session",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{"	for _, end := range ends {\n		end(", "	for _, end := range ends {\n		go end("},
		},
		tests: ". -run ^TestConnClose_EndsLeadershipsAndLocksBeforeSession$",
	},
	{
		name: "session/close-twice", breaks: "a second event of a closed connection does not wait until the grants have ended",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{"			ends = append(ends, s.end)\n", "			ends = append(ends, s.end)\n			s.end = nil\n"},
		},
		tests: "./internal/zk/connection -run ^TestEndOnClose_EachEventEndsGrants$",
	},
	{
		name: "session/hang", breaks: "candidates wait for a client library that does not connect again",
		file: "internal/zk/connection/monitor.go",
		edits: []edit{
			{"hangs := ticked && m.hangs(now)", "hangs := ticked && m.hangs(now) && false"},
		},
		tests: ". -run ^TestHungConnection_EndsCandidaciesAndLocks$",
	},
	{
		name: "session/evidence", breaks: "a forward step of the wall clock counts as age of a proof",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"since(l.proofs[0].acked, newest) < l.timeout/4 {", "limit.Elapsed(l.proofs[0].acked, newest) < l.timeout/4 {"},
		},
		tests: "./internal/zk/connection -run ^TestLease_IsNotExtendedByStepOfWallClock$",
	},
	{
		name: "session/wall-clock-set-back", breaks: "proofs remain no evidence until the wall clock is as late as before",
		file: "internal/zk/connection/lease.go",
		edits: []edit{
			{"if n > 0 && since(l.proofs[n-1].sent, sent) < 0 {", "if false {"},
		},
		tests: "./internal/zk/connection -run ^TestLease_IsNotExtendedByStepOfWallClock$",
	},
}
