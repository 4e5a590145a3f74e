package main

// lockMutants break rules of locks and semaphores.
var lockMutants = []mutant{
	{
		name: "single/persistent", breaks: "a client waits for the deletion of a persistent znode",
		file: "recipes/lock/single.go",
		edits: []edit{
			{"		case e.Persistent:\n			return s.takenError(e)\n", ""},
		},
		tests: "./recipes/lock -run ^TestSingle_RejectsPersistentZnode$",
	},
	{
		name: "single/same-connection", breaks: "the znode of hand-written code on the same connection counts as that of the lock",
		file: "internal/zk/ephemeral/claim.go",
		edits: []edit{
			{"own := c.acquired && (c.static || c.mayExist) && c.covers(stat)", "own := c.acquired && c.covers(stat)"},
		},
		tests: "./recipes/lock -run ^TestSingle_RespectsHandWrittenHolderOfSameSession$",
	},
	{
		name: "single/same-data", breaks: "a znode with the data of this client counts as its own",
		file: "internal/zk/ephemeral/claim.go",
		edits: []edit{
			{"return c.sessions[stat.EphemeralOwner]", "return c.mayExist || c.sessions[stat.EphemeralOwner]"},
			{" || !c.static && stat.EphemeralOwner != c.setup.Conn.SessionID(); c.occupied {", "; c.occupied {"},
			{"c.czxid, c.owner, c.version = stat.Czxid, stat.EphemeralOwner, stat.Version", "c.czxid, c.owner, c.version = stat.Czxid, c.setup.Conn.SessionID(), stat.Version"},
		},
		tests: "./recipes/lock -run ^TestSingle_DoesNotAdoptZnodeWithSameData$",
	},
	{
		name: "ephemeral/caller-reason", breaks: "a znode remains if the caller's reason for its removal is the loss of another znode",
		file: "internal/zk/ephemeral/node.go",
		edits: []edit{
			{"n.end(given || !errors.Is(reason, connection.ErrSessionExpired)", "n.end(given && false || !errors.Is(reason, connection.ErrSessionExpired)"},
		},
		tests: "./internal/zk/ephemeral -run ^TestNode_RemoveDeletesZnodeForAnyReason$",
	},
	{
		name: "single/replaced", breaks: "a holder does not notice that its znode was replaced while it was disconnected",
		file: "internal/zk/ephemeral/node.go",
		edits: []edit{
			{"if n.confirmed = nil; a.Err != nil {", "if n.confirmed = nil; false && a.Err != nil {"},
		},
		tests: "./recipes/lock -run ^TestSingle_DoesNotAdoptZnodeCreatedWhileDisconnected$",
	},
	{
		name: "single/next-session", breaks: "a transaction is applied in the next session, in which another client holds the lock",
		file: "recipes/lock/hold.go",
		edits: []edit{
			{"			own = append(own, session)\n", ""},
		},
		tests: "./recipes/lock -run ^TestSingle_RejectsTransactionSentInNextSession$",
	},
	{
		name: "single/record", breaks: "no transaction is applied after the record was deleted",
		file: "recipes/lock/hold.go",
		edits: []edit{
			{"(h.session != nil || h.wasRenamed(path))", "h.wasRenamed(path)"},
		},
		tests: "./recipes/lock -run ^TestSingle_AppliesTransactionOnlyWhileHeld$",
	},
	{
		name: "single/parent", breaks: "the parent of the znode is a container, which the servers remove",
		file: "internal/zk/ephemeral/node.go",
		edits: []edit{
			{"	c.keepsParent = true\n", ""},
		},
		tests: "./recipes/lock -run ^TestSingle_CreatesMissingParentsAsPersistentZnodes$",
	},
	{
		name: "single/session", breaks: "a wait ends with the session",
		file: "recipes/lock/single.go",
		edits: []edit{
			{"	return recipe.SessionExpired(err) || errors.Is(err, connection.ErrDeleted)", "	return false && errors.Is(err, connection.ErrDeleted)"},
		},
		tests: "./recipes/lock -run ^TestSingle_WaitSurvivesSessionExpiry$",
	},
	{
		name: "single/try", breaks: "TryLock waits for the holder",
		file: "recipes/lock/single.go",
		edits: []edit{
			{"		case noWait:\n", "		case noWait && e.Czxid == 0:\n"},
		},
		tests: "./recipes/lock -run ^TestSingle_ExcludesHandWrittenPrograms$",
	},
	{
		name: "single/lease", breaks: "the hold does not end with the lease",
		file: "internal/zk/ephemeral/node.go",
		edits: []edit{
			{"		if !state.Proven || state.Lapses != lapses {", "		if false && state.Lapses != lapses {"},
		},
		tests: "./recipes/lock -run ^TestSingle_HoldEndsBeforeSessionExpires$",
	},
	{
		name: "recipe/wait-cause", breaks: "a wait never ends if the cause of its context is the loss of another hold's session",
		file: "internal/zk/recipe/recipe.go",
		edits: []edit{
			{"; ctx.Err() != nil || !isLost(err) {", "; !isLost(err) {"},
		},
		tests: "./recipes -run ^TestWait_ReturnsIfContextCauseIsSessionLoss$",
	},
	{
		name: "recipe/period-early", breaks: "a hold begins before the period has ended",
		file: "recipes/lock/period.go",
		edits: []edit{
			{"; left > 0 {", "; left > p.d {"},
		},
		tests: "./recipes/lock -run ^TestPeriod_GrantsOneHoldPerPeriod$",
	},
	{
		name: "recipe/period-stored", breaks: "the begin of a period is not stored",
		file: "recipes/lock/period.go",
		edits: []edit{
			{"Data: []byte(next), Version", "Data: data, Version"},
		},
		tests: "./recipes/lock -run ^TestPeriod_GrantsOneHoldPerPeriod$",
	},
	{
		name: "recipe/period-lost", breaks: "Next ends because the hold was lost before the period has begun",
		file: "recipes/lock/period.go",
		edits: []edit{
			{"fmt.Errorf(\"%w: %w\", recipes.ErrNotHeld, h.Err())", "h.Err()"},
		},
		tests: "./recipes/lock -run ^TestPeriod_NextContinuesAfterSessionEnds$",
	},
	{
		name: "recipe/period-reply", breaks: "a hold does not begin if the reply to the write of the time was lost",
		file: "recipes/lock/period.go",
		edits: []edit{
			{"		case err == nil && written[string(data)] && h.Err() == nil:", "		case false:"},
		},
		tests: "./recipes/lock -run ^TestPeriod_BeginsHoldIfReplyIsLost$",
	},
	{
		name: "recipe/period-same-time", breaks: "a second hold begins in a period, because another client has stored the same time after the lock was lost",
		file: "recipes/lock/period.go",
		edits: []edit{
			{"written[string(data)] && h.Err() == nil:", "written[string(data)]:"},
		},
		tests: "./recipes/lock -run ^TestPeriod_DistinguishesEqualTimesOfTwoClients$",
	},
	{
		name: "recipe/do-loss", breaks: "Do hides that the lock was lost while the function ran",
		file: "recipes/lock/do.go",
		edits: []edit{
			{"lost != nil && !errors.Is(lost, recipes.ErrReleased)", "lost != nil && errors.Is(lost, errGivenUp)"},
		},
		tests: "./recipes/lock -run ^TestDo_EndsContextAndFailsIfLockIsLost$",
	},
	{
		name: "recipe/do-context", breaks: "the context of the function does not end with the hold",
		file: "internal/zk/connection/work.go",
		edits: []edit{
			{"context.WithCancelCause(granted)", "context.WithCancelCause(context.WithoutCancel(granted))"},
		},
		tests: "./recipes/lock -run ^TestDo_EndsContextAndFailsIfLockIsLost$",
	},
	{
		name: "recipe/do-reentrant", breaks: "a function waits for the lock that Do holds for it",
		file: "internal/zk/connection/work.go",
		edits: []edit{
			{"if v := c.Context.Value(key); v != nil {", "if v := c.caller.Value(key); v != nil {"},
			{"	return c.caller.Value(key)\n", "	return nil\n"},
		},
		tests: "./recipes/lock -run ^TestDo_RejectsReentrantCall$",
	},
	{
		name: "recipe/lock-session", breaks: "a wait for a lock ends with the session",
		file: "recipes/lock/entry.go",
		edits: []edit{
			{"recipe.AcrossSessions(ctx, recipe.SessionExpired,", "recipe.AcrossSessions(ctx, func(error) bool { return false },"},
		},
		tests: "./recipes/lock -run ^TestDo_WaitSurvivesSessionExpiry$",
	},
	{
		name: "recipe/events-hold-lost", breaks: "the loss of a hold is reported as a release",
		file: "recipes/lock/events.go",
		edits: []edit{
			{"!errors.Is(err, recipes.ErrReleased) {", "errors.Is(err, recipes.ErrReleased) && err == nil {"},
		},
		tests: "./recipes -run ^TestEvents_LocksReportHolds$",
	},
	{
		name: "recipe/events-item", breaks: "the end of a delivery is reported as its loss",
		file: "recipes/queue/events.go",
		edits: []edit{
			{"case d.completed != c.as:", "case d.completed != errReturned:"},
		},
		tests: "./recipes -run ^TestEvents_QueueReportsItems$",
	},
	{
		name: "recipe/semaphore-request", breaks: "a contender that wakes its follower erases a request to release",
		file: "internal/zk/queue/requests.go",
		edits: []edit{
			{"data, version := r.cfg.Data, int32(0)", "data, version := r.cfg.Data, int32(-1)"},
		},
		tests: "./recipes/lock -run ^TestSemaphore_RequestReleaseReachesWaiter$",
	},
	{
		name: "recipe/semaphore-lease-request", breaks: "a request is noticed at one of several leases only",
		file: "recipes/lock/hold.go",
		edits: []edit{
			{"append([]string{h.path}, h.otherPaths...)", "[]string{h.path}"},
		},
		tests: "./recipes/lock -run ^TestSemaphoreMutex_ContendersListsLeasesThenWaiters$",
	},
	{
		name: "recipe/multi-leases", breaks: "a transaction of several locks does not check each of several leases",
		file: "recipes/lock/multi.go",
		edits: []edit{
			{"append(append(own, h.znodePath()), h.otherPaths...)", "append(own, h.znodePath())"},
		},
		tests: "./recipes/lock -run ^TestMultiHold_RejectsTransactionIfOneLeaseIsDeleted$",
	},
	{
		name: "recipe/count-lowered", breaks: "a contender for a lease is admitted by an earlier limit",
		file: "recipes/lock/semaphore_mutex_acquire.go",
		edits: []edit{
			{"	if v.leasesStarted && !v.restarting {", "	if v.leasesStarted && !v.restarting && limit < 0 {"},
		},
		tests: "./recipes/lock -run ^TestSharedCount_ContendersFollowLimit$",
	},
	{
		name: "recipe/limit-differs", breaks: "a program is not told that its limit does not apply",
		file: "recipes/lock/semaphore_limit.go",
		edits: []edit{
			{"&& stored != g.limit {", "&& stored == g.limit {"},
		},
		tests: "./recipes/lock -run ^TestSemaphoreLimit_WarnsIfStoredLimitDiffers$",
	},
	{
		name: "recipe/rL7", breaks: "the marker is deleted although the lease has expired",
		file: "recipes/lock/delay.go",
		edits: []edit{
			{"if d.name == \"\" || errors.Is(reason, connection.ErrLeaseExpired) {", "if _ = errors.Is(reason, connection.ErrLeaseExpired); d.name == \"\" {"},
		},
		tests: "./recipes/lock -run ^TestLockDelay_AppliesAfterLeaseExpires$",
	},
	{
		name: "recipe/rL12", breaks: "a lock that is lost while another is acquired is not noticed",
		file: "recipes/lock/multi.go",
		edits: []edit{
			{`			for _, h := range holds { // an earlier lock may have been lost in the meantime
				err = cmp.Or(err, h.Err())
			}
`, `			err = cmp.Or(err)
`},
		},
		tests: "./recipes/lock -run ^TestMultiLock_FailsIfLockIsLostDuringLastAcquisition$",
	},
	{
		name: "recipe/rL13", breaks: "a grant becomes valid again after its lease has expired",
		file: "recipes/lock/entry.go",
		edits: []edit{
			{"		t.loseGrant(connection.ErrLeaseExpired)", "		_ = connection.ErrLeaseExpired"},
		},
		tests: "./recipes/lock -run ^TestLockDelay_AppliesAfterLeaseExpires$",
	},
	{
		name: "recipe/rL8", breaks: "a lock is released before its grant ends",
		file: "recipes/lock/hold.go",
		edits: []edit{
			{`	h.grant.End(err)
	h.stop(err)`, `	h.stop(err)
	h.grant.End(err)`},
		},
		tests: "./recipes/lock -run ^TestHold_EndsBeforeZnodeIsDeleted$",
	},
	{
		name: "recipe/lock-marker", breaks: "a marker that cannot be deleted ends all contenders of a lock",
		file: "recipes/lock/delay.go",
		edits: []edit{
			{"\t\t\tif i < 0 {\n", "\t\t\tif i >= 0 {\n"},
		},
		tests: "./recipes/lock -run ^TestLock_IsGrantedDespiteForeignZnodes$/^marker",
	},
	{
		name: "recipe/lock-list", breaks: "the contenders of a lock cannot be listed if one cannot be read",
		file: "recipes/lock/contenders.go",
		edits: []edit{
			{"if stat == nil {", "if err != nil {"},
		},
		tests: "./recipes/lock -run ^TestLock_IsGrantedDespiteForeignZnodes$/^no_right_to_read$",
	},
	{
		name: "recipe/lock-persistent", breaks: "a lock waits for a persistent znode without a warning",
		file: "internal/zk/queue/driver.go",
		edits: []edit{
			{" || r.path == d.persistent {", " || true {"},
		},
		tests: "./recipes/lock -run ^TestLock_IsGrantedDespiteForeignZnodes$/^persistent$",
	},
	{
		name: "recipe/lock-persistent-once", breaks: "the warning of a persistent znode is repeated without a right to read it",
		file: "internal/zk/queue/driver.go",
		edits: []edit{
			{" || r.path == d.persistent {", " {"},
		},
		tests: "./recipes/lock -run ^TestLock_IsGrantedDespiteForeignZnodes$/^persistent,_no_right_at_all$",
	},
	{
		name: "recipe/revoked-unreadable", breaks: "requests for a release are not noticed after the data of the holder could not be read",
		file: "recipes/lock/hold.go",
		edits: []edit{
			{"err != nil && !connection.IsUnreadable(err)", "err != nil || connection.IsUnreadable(err)"},
		},
		tests: "./recipes/lock -run ^TestReleaseRequested_ReportsRequestAfterUnreadableData$",
	},
}
