package main

// workQueueMutants break rules of the work queues of package recipes/queue.
var workQueueMutants = []mutant{
	{
		name: "recipe/queue-attempts", breaks: "an item that always fails is delivered forever unless the program sets a limit",
		file: "recipes/queue/queue.go",
		edits: []edit{
			{"cfg := config{maxAttempts: defaultMaxAttempts}", "cfg := config{}"},
		},
		tests: "./recipes/queue -run ^TestWithMaxAttempts_DefaultMakesDeadLetter$",
	},
	{
		name: "recipe/queue-metrics-ended", breaks: "the number of items of a closed queue remains in the metrics",
		file: "electionprom/recipes.go",
		edits: []edit{
			{"		gauge.DeleteLabelValues(e.Path)\n", "		_ = gauge\n"},
		},
		tests: "./electionprom -run ^TestRecipeCollector_CountsLocksQueuesCaches$",
	},
	{
		name: "recipe/queue-metrics-open", breaks: "the number of items of a queue disappears although another value reports it",
		file: "electionprom/recipes.go",
		edits: []edit{
			{"if c.open[s]--; c.open[s] > 0 {", "if c.open[s]--; c.open[s] > 99 {"},
		},
		tests: "./electionprom -run ^TestRecipeCollector_CountsLocksQueuesCaches$",
	},
	{
		name: "recipe/queue-later-stale", breaks: "a consumer that has listed an item before receives it before its delay is over",
		file: "recipes/queue/later.go",
		edits: []edit{
			{"		{&zk.CreateRequest{Path: claim, Acl: d.q.acl}, d, otherOperation},\n		{&zk.SetDataRequest{Path: claim, Data: []byte(m.name), Version: 0}, d, otherOperation},\n", ""},
			{"	claim := d.q.claimPath(d.name)\n	return []operation{", "	return []operation{"},
		},
		tests: "./recipes/queue -run ^TestLater_DoesNotDeliverItemEarly$",
	},
	{
		name: "recipe/queue-later-early", breaks: "an item is delivered before its delay is over",
		file: "recipes/queue/later.go",
		edits: []edit{
			{"return !time.UnixMilli(m.due).After(leader)", "return m.due > 0"},
		},
		tests: "./recipes/queue -run ^TestHandle_DeliversFailedItemOncePerBackoff$",
	},
	{
		name: "recipe/queue-later-claim", breaks: "the claim of a consumer is deleted as that of a delayed item",
		file: "recipes/queue/later.go",
		edits: []edit{
			{"Path: q.claimPath(item), Version: delayedVersion}", "Path: q.claimPath(item), Version: -1}"},
		},
		tests: "./recipes/queue -run ^TestLater_DueMarkerDoesNotEndClaim$",
	},
	{
		name: "recipe/queue-later-orphan", breaks: "the marker of a deleted item remains",
		file: "recipes/queue/later.go",
		edits: []edit{
			{"if !exists[item] && m.isDue(leader) {", "if exists[item] && m.isDue(leader) {"},
		},
		tests: "./recipes/queue -run ^TestLater_LeavesNoMarkerAfterDeletionByOperator$",
	},
	{
		name: "recipe/queue-later-wait", breaks: "a delayed item is taken for a dead letter",
		file: "recipes/queue/later.go",
		edits: []edit{
			{"	return m, ok && of == item\n", "	return m, false && of == item\n"},
			{"	m, of, ok := parseMarker", "	m, of, _ := parseMarker"},
		},
		tests: "./recipes/queue -run ^TestLater_ItemCanBeWithdrawnAndAwaited$",
	},
	{
		name: "recipe/queue-withdraw", breaks: "an item that a consumer has claimed is withdrawn",
		file: "recipes/queue/info.go",
		edits: []edit{
			{"&zk.CreateRequest{Path: claim, Acl", "&zk.CreateRequest{Path: claim + \"x\", Acl"},
			{"&zk.DeleteRequest{Path: claim, Version", "&zk.DeleteRequest{Path: claim + \"x\", Version"},
		},
		tests: "./recipes/queue -run ^TestWithdraw_DeletesOnlyUnclaimedItem$",
	},
	{
		name: "recipe/queue-wait-dead", breaks: "Wait reports a dead letter as completed",
		file: "recipes/queue/info.go",
		edits: []edit{
			{"itemOfDeadLetter(letter) == id && (", "false && ("},
		},
		tests: "./recipes/queue -run ^TestWait_ReturnsOutcomeOfItem$",
	},
	{
		name: "recipe/queue-wait-blocked", breaks: "Wait does not notice a dead letter that remains in the queue",
		file: "recipes/queue/info.go",
		edits: []edit{
			{"claimed.Stat != nil && claimed.Stat.EphemeralOwner == 0 && !delayed {", "claimed.Stat != nil && claimed.Stat.EphemeralOwner == 1 && !delayed {"},
		},
		tests: "./recipes/queue -run ^TestGet_ReportsWhyItemIsBlocked$",
	},
	{
		name: "recipe/queue-id", breaks: "Put returns the ID of another item after a lost reply",
		file: "recipes/queue/put.go",
		edits: []edit{
			{"if stat.Czxid == zxid {", "if stat.Czxid >= zxid {"},
		},
		tests: "./recipes/queue -run ^TestPut_ReturnsID$",
	},
	{
		name: "recipe/queue-reject", breaks: "an item that its handler rejects is delivered again",
		file: "recipes/queue/ack.go",
		edits: []edit{
			{"!d.isLastAttempt() && !isRejection(cause)", "!d.isLastAttempt()"},
		},
		tests: "./recipes/queue -run ^TestHandle_AcknowledgesOrReturnsItemByResult$",
	},
	{
		name: "recipe/queue-ack-rejected", breaks: "an item whose acknowledgement is rejected remains claimed",
		file: "recipes/queue/handle.go",
		edits: []edit{
			{"item.Err() == nil && !errors.Is(err, recipes.ErrUnconfirmed)", "item.Err() == nil && errors.Is(err, recipes.ErrUnconfirmed)"},
		},
		tests: "./recipes/queue -run ^TestHandle_ReturnsItemIfAcknowledgementIsRejected$",
	},
	{
		name: "recipe/queue-interrupted", breaks: "an item whose handler is interrupted in its last attempt becomes a dead letter",
		file: "recipes/queue/handle.go",
		edits: []edit{
			{"case ctx.Err() != nil && !isRejection(failure):", "case ctx.Err() != nil && isRejection(failure):"},
		},
		tests: "./recipes/queue -run ^TestHandle_DoesNotCountInterruptedAttempt$",
	},
	{
		name: "removal/claim", breaks: "an item whose return is rejected for a moment is not available as long as the session lives",
		file: "recipes/queue/claim_delete.go",
		edits: []edit{
			{"go q.deleteClaimLater(d)", "_ = q.deleteClaimLater"},
		},
		tests: "./internal/testenv/eachrequest -run ^TestScripts_RetryRejectedRemovals$",
	},
	{
		name: "recipe/early-read-session", breaks: "an early read of an earlier session is used",
		file: "recipes/queue/claim.go",
		edits: []edit{
			{"r.session == session && c.stat.Pzxid >= zxid", "c.stat.Pzxid >= zxid"},
		},
		tests: "./recipes/queue -run ^TestEarlyRead_IsIgnoredIfOlderThanClaim$",
	},
	{
		name: "recipe/rQ1", breaks: "an early read that does not include the claim is used",
		file: "recipes/queue/claim.go",
		edits: []edit{
			{"r.session == session && c.stat.Pzxid >= zxid", "r.session == session"},
		},
		tests: "./recipes/queue -run ^TestEarlyRead_IsIgnoredIfOlderThanClaim$",
	},
	{
		name: "recipe/rQ2", breaks: "the claim of another consumer is deleted",
		file: "recipes/queue/claim_delete.go",
		edits: []edit{
			{"if err == nil && stat.Czxid == d.token {", "if err == nil && stat.Czxid != 0 {"},
		},
		tests: "./recipes/queue -run ^TestReturn_KeepsNextClaimIfOutcomeIsUnknown$",
	},
	{
		name: "recipe/rQ3", breaks: "an item survives the expiry of its lease",
		file: "recipes/queue/lease.go",
		edits: []edit{
			{"(!state.Proven || state.Lapses != d.lapses)", "!state.Proven"},
		},
		tests: "./recipes/queue -run ^TestLossReason_ReportsExpiredSessionOrLease$",
	},
	{
		name: "recipe/rQ6", breaks: "the attempt of an unread item counts",
		file: "recipes/queue/claim_delete.go",
		edits: []edit{
			{"if !d.received.Load() && d.raw != nil {", "if false {"},
		},
		tests: "./recipes/queue -run ^TestItems_DoesNotCountAttemptOfUnreadItem$",
	},
	{
		name: "recipe/rQ4", breaks: "a queue is not listed again after a reconnect",
		file: "recipes/queue/listing.go",
		edits: []edit{
			{`		d.items.stale, d.claims.stale = true, true
`, ""},
		},
		tests: "./recipes/queue -run ^TestListing_NoticesUrgentItemAfterWatchIsLost$",
	},
	{
		name: "recipe/queue-doubt", breaks: "a queue is not listed again if its watch is in doubt",
		file: "recipes/queue/dispatcher.go",
		edits: []edit{
			{`			d.items.stale, d.claims.stale = true, true
			return nil
		case changed:`, `			return nil
		case changed:`},
		},
		tests: "./recipes/queue -run ^TestListing_DoesNotReuseLostWatchOfClosedQueue$",
	},
	{
		name: "recipe/queue-uncertain", breaks: "Close leaves a claim whose outcome is unknown",
		file: "recipes/queue/queue.go",
		edits: []edit{
			{"q.dispatcher.deleteUncertainClaim(name, id)", "_, _ = name, id"},
		},
		tests: "./recipes/queue -run ^TestClaim_IsDeletedIfOutcomeIsUnknown$",
	},
	{
		name: "recipe/rQ5", breaks: "an item that comes with the end of the context is lost",
		file: "recipes/queue/take.go",
		edits: []edit{
			{`		result = <-results // the result was sent at the same time
`, `		return nil, q.wrapError("take from", context.Cause(ctx))
`},
		},
		tests: "./recipes/queue -run ^TestTake_ReturnsItemThatArrivesWhenContextEnds$",
	},
	{
		name: "recipe/queue-foreign", breaks: "an item that cannot be claimed ends all calls",
		file: "recipes/queue/claim.go",
		edits: []edit{
			{"		case o.Failed >= 0 && failed != 0 || errors.Is(o.Err, connection.ErrTooLarge):", "		case errors.Is(o.Err, connection.ErrTooLarge):"},
		},
		tests: "./recipes/queue -run ^TestQueue_DeliversItemsDespiteForeignZnodes$",
	},
	{
		name: "recipe/queue-unread", breaks: "an item that cannot be read is given to the program",
		file: "recipes/queue/claim.go",
		edits: []edit{
			{"		case a.Err != nil:\n			d.skipItem(", "		case a.Err != nil && a.Value.stat == nil:\n			d.skipItem("},
		},
		tests: "./recipes/queue -run ^TestItems_ContinuesDespiteUnreadableItem$",
	},
	{
		name: "recipe/queue-in-place", breaks: "an item that cannot be read is deleted after its last attempt",
		file: "recipes/queue/completion.go",
		edits: []edit{
			{"c.toDeadLetters, c.inPlace, c.reason = true, d.unread, reason", "c.toDeadLetters, c.inPlace, c.reason = true, false, reason"},
		},
		tests: "./recipes/queue -run ^TestItems_ContinuesDespiteUnreadableItem$",
	},
	{
		name: "recipe/queue-letter", breaks: "a dead letter that another client has written selects the znodes that are deleted",
		file: "recipes/queue/deadletter.go",
		edits: []edit{
			{"err == nil && r.Item != itemOfDeadLetter(letter)", "false"},
		},
		tests: "./recipes/queue -run ^TestDeadLetter_DoesNotExposeAnotherZnode$",
	},
	{
		name: "recipe/queue-skip", breaks: "an item that fails is claimed again without a delay",
		file: "recipes/queue/dispatcher.go",
		edits: []edit{
			{"time.Now().Before(d.skipped[e.name].until)", "false && time.Now().Before(d.skipped[e.name].until)"},
		},
		tests: "./recipes/queue -run ^TestReturn_DelaysRepeatedDeliveries$",
	},
	{
		name: "recipe/queue-late", breaks: "a call after a slow acknowledgement acknowledges the item without its operations",
		file: "recipes/queue/late.go",
		edits: []edit{
			{"		if r.as == c.as && (r.alone || !c.alone) &&", "		if false &&"},
		},
		tests: "./recipes/queue -run ^TestAck_ContinuesAfterTimeLimit$",
	},
	{
		name: "recipe/queue-late-ops", breaks: "Ack returns the success of a call that has not executed its operations",
		file: "recipes/queue/late.go",
		edits: []edit{
			{"(r.alone || !c.alone) && ", ""},
		},
		tests: "./recipes/queue -run ^TestAckAll_RepeatedCallsReturnFirstOutcome$",
	},
	{
		name: "recipe/queue-late-several", breaks: "repeated calls of AckAll add goroutines while the servers do not answer",
		file: "recipes/queue/late.go",
		edits: []edit{
			{"slices.Equal(r.call, c.call) {", "slices.Equal(r.call, c.call) && len(c.call) == 1 {"},
		},
		tests: "./recipes/queue -run ^TestAckAll_RepeatedCallsReturnFirstOutcome$",
	},
	{
		name: "recipe/queue-late-settled", breaks: "an acknowledgement fails because of a concurrent call that was too late",
		file: "recipes/queue/late.go",
		edits: []edit{
			{"limit.Await(r.done, end) && errors.Is(r.err, errSettled) {", "false && errors.Is(r.err, errSettled) {"},
		},
		tests: "./recipes/queue -run ^TestAckAll_RepeatedCallsReturnFirstOutcome$",
	},
	{
		name: "recipe/queue-skip-session", breaks: "an item is skipped because of one with its name that the servers have lost",
		file: "recipes/queue/listing.go",
		edits: []edit{
			{"		clear(d.skipped)\n", ""},
		},
		tests: "./recipes/queue -run ^TestQueue_DeliversReusedNameAfterDataLoss$",
	},
}
