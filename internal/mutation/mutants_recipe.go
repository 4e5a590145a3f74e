package main

// recipeMutants break rules of recipes.
var recipeMutants = []mutant{
	{
		name: "recipe/X1", breaks: "the reply that a session has moved counts as final",
		file: "internal/zk/zkerror/codes.go",
		edits: []edit{
			{`"SESSIONMOVED", Transient,`, `"SESSIONMOVED", Final,`},
		},
		tests: ". -run ^TestTrap10_SessionMovedDuringCreate$",
	},
	{
		name: "removal/queue", breaks: "a znode whose deletion is rejected for a moment blocks a lock as long as its session lives",
		file: "internal/zk/queue/requests.go",
		edits: []edit{
			{"go deleteLater(r.cfg, res.path)", "_ = deleteLater"},
		},
		tests: "./internal/testenv/eachrequest -run ^TestRejectedRemovals$",
	},
	{
		name: "removal/ephemeral", breaks: "the znode of a member whose deletion is rejected for a moment remains as long as its session lives",
		file: "internal/zk/ephemeral/claim.go",
		edits: []edit{
			{`		c.removing = true
		go c.removeLater()
`, "\t\t_ = c.removeLater\n"},
		},
		tests: "./internal/testenv/eachrequest -run ^TestRejectedRemovals$",
	},
	{
		name: "removal/claim", breaks: "an item whose return is rejected for a moment is not available as long as the session lives",
		file: "recipes/queue/claim_delete.go",
		edits: []edit{
			{"go q.deleteClaimLater(d)", "_ = q.deleteClaimLater"},
		},
		tests: "./internal/testenv/eachrequest -run ^TestRejectedRemovals$",
	},
	{
		name: "znode/parents", breaks: "the parents of the node of a recipe remain after it was deleted",
		file: "internal/zk/znode/znode.go",
		edits: []edit{
			{"path.Dir(node), acl, true)", "path.Dir(node), acl, false)"},
		},
		tests: "./internal/zk/znode -run ^TestMake_Parents$",
	},
	{
		name: "znode/characters", breaks: "a path with a character above U+FFFF is sent to the servers",
		file: "internal/zk/znode/znode.go",
		edits: []edit{
			{"|| r >= 0xfff0", "|| r >= 0xfff0 && r <= 0xffff"},
		},
		tests: ". -run ^TestCheckNode$",
	},
	{
		name: "znode/length", breaks: "a path is accepted with which transactions become larger than servers accept",
		file: "internal/zk/znode/znode.go",
		edits: []edit{
			{"case len(node) > maxPath:", "case false:"},
		},
		tests: ". -run ^TestCheckNode$",
	},
	{
		name: "recipe/rL7", breaks: "the marker is deleted although the lease has expired",
		file: "recipes/lock/delay.go",
		edits: []edit{
			{"if d.name == \"\" || errors.Is(reason, zkerror.ErrLeaseExpired) {", "if _ = errors.Is(reason, zkerror.ErrLeaseExpired); d.name == \"\" {"},
		},
		tests: "./recipes/lock -run ^TestLockDelay_LeaseExpires$",
	},
	{
		name: "recipe/rL12", breaks: "a lock that is lost while another is acquired is not noticed",
		file: "recipes/lock/multi.go",
		edits: []edit{
			{`			for _, h := range holds { // one may have been lost just now
				err = cmp.Or(err, h.Err())
			}
`, `			err = cmp.Or(err)
`},
		},
		tests: "./recipes/lock -run ^TestMultiLock_LosesLockDuringLastAcquisition$",
	},
	{
		name: "recipe/rL13", breaks: "a grant becomes valid again after its lease has expired",
		file: "recipes/lock/entry.go",
		edits: []edit{
			{`	case t.end != nil && s.First && !s.Proven:
		// The grant must not become valid again, because other clients may acquire the lock now.
		t.lose(zkerror.ErrLeaseExpired)
`, ""},
		},
		tests: "./recipes/lock -run ^TestLockDelay_LeaseExpires$",
	},
	{
		name: "recipe/early-read-session", breaks: "an early read of an earlier session is used",
		file: "recipes/queue/claim.go",
		edits: []edit{
			{"r.session == session && c.stat.Pzxid >= zxid", "c.stat.Pzxid >= zxid"},
		},
		tests: "./recipes/queue -run ^TestEarlyRead_MustIncludeClaim$",
	},
	{
		name: "recipe/rQ1", breaks: "an early read that does not include the claim is used",
		file: "recipes/queue/claim.go",
		edits: []edit{
			{"r.session == session && c.stat.Pzxid >= zxid", "r.session == session"},
		},
		tests: "./recipes/queue -run ^TestEarlyRead_MustIncludeClaim$",
	},
	{
		name: "recipe/rQ2", breaks: "the claim of another consumer is deleted",
		file: "recipes/queue/claim_delete.go",
		edits: []edit{
			{"if err == nil && stat.Czxid == d.token {", "if err == nil && stat.Czxid != 0 {"},
		},
		tests: "./recipes/queue -run ^TestReturn_ReplyAndRecordLost$",
	},
	{
		name: "recipe/rQ3", breaks: "an item survives the expiry of its lease",
		file: "recipes/queue/lease.go",
		edits: []edit{
			{"(!state.Proven || state.Lapses != d.lapses)", "!state.Proven"},
		},
		tests: "./recipes/queue -run ^TestLossReason$",
	},
	{
		name: "recipe/rQ6", breaks: "the attempt of an unread item counts",
		file: "recipes/queue/claim_delete.go",
		edits: []edit{
			{"if !d.received.Load() && d.raw != nil {", "if false {"},
		},
		tests: "./recipes/queue -run ^TestConsume_UnreadItemIsNoAttempt$",
	},
	{
		name: "recipe/rO1", breaks: "a batch is retried although the lost request may still be applied",
		file: "internal/zk/txn/record.go",
		edits: []edit{
			{`		stat, err = conn.Set(r.path, r.nextID(), r.version)
`, `		r.nextID()
		return notApplied, nil, nil
		stat, err = conn.Set(r.path, r.nextID(), r.version)
`},
		},
		tests: "./internal/zk/txn -run ^TestRecord_LateRequestFails$",
	},
	{
		name: "recipe/txn-record", breaks: "a transaction is applied with a record that was created later",
		file: "internal/zk/txn/apply.go",
		edits: []edit{
			{"case c.t.Record != \"\" && c.t.Record != r.path:", "case false:"},
		},
		tests: "./internal/zk/txn -run ^TestTransaction_BoundToRecord$",
	},
	{
		name: "recipe/txn-session", breaks: "a transaction that may have been applied in a lost session is retried",
		file: "internal/zk/txn/record.go",
		edits: []edit{
			{"case lost && conn.SessionID() != session:", "case session == -1:"},
		},
		tests: "./internal/zk/txn -run ^TestCreatesDir_UnknownIfSessionExpires$",
	},
	{
		name: "recipe/counter-overflow", breaks: "a write leaves a counter at version -1",
		file: "recipes/counter/write.go",
		edits: []edit{
			{"if old.version == anyVersion-1 {", "if false {"},
		},
		tests: "./recipes/counter -run ^TestTrap33_VersionOverflow$",
	},
	{
		name: "recipe/rC1", breaks: "a reply with an older mzxid is applied",
		file: "recipes/cache/apply.go",
		edits: []edit{
			{"case z.Stat.Czxid < old.Stat.Czxid || z.Stat.Mzxid < old.Stat.Mzxid:", "case z.Stat.Czxid < old.Stat.Czxid:"},
		},
		tests: "./recipes/cache -run ^TestTrap29_OlderRepliesAreDropped$",
	},
	{
		name: "recipe/rC2", breaks: "a list removes children that were created after it",
		file: "recipes/cache/apply.go",
		edits: []edit{
			{"if c.listedAt != now && (c.value == nil || c.value.Stat.Czxid <= f.stat.Pzxid) {", "if c.listedAt != now {"},
		},
		tests: "./recipes/cache -run ^TestTrap29_ListAfterNewerReply$",
	},
	{
		name: "recipe/first-of-session", breaks: "a reply of the next session is compared with zxids of the earlier one",
		file: "recipes/cache/apply.go",
		edits: []edit{
			{"	case first:\n		u.replaceValue(n, z)\n", ""},
		},
		tests: "./recipes/cache -run ^TestDataLoss_ZnodesExistAgain$",
	},
	{
		name: "recipe/rC3", breaks: "the server of a new session is assumed to be up to date",
		file: "recipes/cache/updater.go",
		edits: []edit{
			{"broken, u.needsSync, u.sessionEpoch = true, true, u.epoch+1", "broken, u.sessionEpoch = true, u.epoch+1"},
		},
		tests: "./recipes/cache -run ^TestTrap18_NewSession$",
	},
	{
		name: "recipe/rC4", breaks: "every first reply is applied immediately",
		file: "recipes/cache/apply.go",
		edits: []edit{
			{"return p == nil || u.isCurrent(&p.data) || u.isCurrent(&p.list)", `_ = p
	return true`},
		},
		tests: "./recipes/cache -run ^TestTrap29_ChildBeforeNewParent$",
	},
	{
		name: "recipe/large", breaks: "a reply that is too large is not recognized",
		file: "internal/zk/request/large.go",
		edits: []edit{
			{"certain := s.limit != unknownLimit && size > s.limit", "certain := false && size > s.limit"},
		},
		tests: "./internal/zk/request -run TooLarge",
	},
	{
		name: "recipe/rL8", breaks: "a lock is released before its grant ends",
		file: "recipes/lock/hold.go",
		edits: []edit{
			{`	h.end(err)
	h.stop(err)`, `	h.stop(err)
	h.end(err)`},
		},
		tests: "./recipes/lock -run ^TestHold_EndsBeforeZnodeIsDeleted$",
	},
	{
		name: "recipe/rQ4", breaks: "a queue is not listed again after a reconnect",
		file: "recipes/queue/listing.go",
		edits: []edit{
			{`		d.items.stale, d.claims.stale = true, true
`, ""},
		},
		tests: "./recipes/queue -run ^TestTrap27_WatchIsLostDuringListing$",
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
		tests: "./recipes/queue -run ^TestTrap27_WatchOfClosedQueueIsLost$",
	},
	{
		name: "recipe/queue-uncertain", breaks: "Close leaves a claim whose outcome is unknown",
		file: "recipes/queue/queue.go",
		edits: []edit{
			{"q.dispatcher.deleteUncertainClaim(name, id)", "_, _ = name, id"},
		},
		tests: "./recipes/queue -run ^TestClaim_ReplyAndRecordLost$",
	},
	{
		name: "recipe/rQ5", breaks: "an item that comes with the end of the context is lost",
		file: "recipes/queue/take.go",
		edits: []edit{
			{`		result = <-results // it was sent at the same time
`, `		return nil, q.wrapError("take from", context.Cause(ctx))
`},
		},
		tests: "./recipes/queue -run ^TestTake_ItemArrivesWhenContextEnds$",
	},
	{
		name: "recipe/queue-foreign", breaks: "an item that cannot be claimed ends all calls",
		file: "recipes/queue/claim.go",
		edits: []edit{
			{"		case o.Failed > 0 || errors.Is(o.Err, txn.ErrTooLarge):", "		case errors.Is(o.Err, txn.ErrTooLarge):"},
		},
		tests: "./recipes/queue -run ^TestForeignParticipant$",
	},
	{
		name: "recipe/queue-unread", breaks: "an item that cannot be read is given to the program",
		file: "recipes/queue/claim.go",
		edits: []edit{
			{"		case a.Err != nil:\n			d.skip(", "		case a.Err != nil && a.Value.stat == nil:\n			d.skip("},
		},
		tests: "./recipes/queue -run ^TestConsume_UnreadableItem$",
	},
	{
		name: "recipe/queue-in-place", breaks: "an item that cannot be read is deleted after its last attempt",
		file: "recipes/queue/completion.go",
		edits: []edit{
			{"c.toDeadLetters, c.inPlace, c.reason = true, d.unread, reason", "c.toDeadLetters, c.inPlace, c.reason = true, false, reason"},
		},
		tests: "./recipes/queue -run ^TestConsume_UnreadableItem$",
	},
	{
		name: "recipe/queue-empty-stat", breaks: "the empty Stat of a failed read counts as that of the item",
		file: "recipes/queue/claim.go",
		edits: []edit{
			{"			return content{}, err // the client library returns an empty Stat", "			return content{raw, stat}, err"},
		},
		tests: "./recipes/queue -run ^TestForeignParticipant$",
	},
	{
		name: "recipe/queue-skip", breaks: "an item that fails is claimed again without a delay",
		file: "recipes/queue/dispatcher.go",
		edits: []edit{
			{"time.Now().Before(d.skipped[e.name].until)", "false && time.Now().Before(d.skipped[e.name].until)"},
		},
		tests: "./recipes/queue -run ^TestReturn_RepeatedlyIsDelayed$",
	},
	{
		name: "recipe/unreadable-predecessor", breaks: "a contender that must not read its predecessor ends",
		file: "internal/zk/queue/requests.go",
		edits: []edit{
			{"	if what == watch.Data && request.IsUnreadable(err) {", "	if false && request.IsUnreadable(err) {"},
		},
		tests: ". -run ^TestElectLeader_ForeignParticipant$",
	},
	{
		name: "recipe/unreadable-doubt", breaks: "a contender waits for an event of a znode that it must not read",
		file: "internal/zk/watch/read.go",
		edits: []edit{
			{" || errors.Is(r.err, zk.ErrNoAuth)", ""},
		},
		tests: ". -run ^TestElectLeader_ForeignParticipant$",
	},
	{
		name: "recipe/unreadable-member", breaks: "a member whose data cannot be read ends the views of all",
		file: "recipes/group/view.go",
		edits: []edit{
			{"		if request.IsUnreadable(err) {", "		if false && request.IsUnreadable(err) {"},
		},
		tests: "./recipes/group -run ^TestChanges_ForeignParticipant$",
	},
	{
		name: "recipe/part-lock", breaks: "a member leaves because one part cannot be locked",
		file: "recipes/group/share.go",
		edits: []edit{
			{"		case errors.Is(err, recipes.ErrConnClosed):\n", "		case !errors.Is(err, recipes.ErrSessionExpired):\n"},
		},
		tests: "./recipes/group -run ^TestPartitioner_ForeignParticipant$",
	},
	{
		name: "recipe/barrier-stray", breaks: "a child that is not a participant counts as one",
		file: "recipes/barrier/round.go",
		edits: []edit{
			{"	return found && len(id) >= idLength && strings", "	return found || found && len(id) >= idLength && strings"},
		},
		tests: "./recipes/barrier -run ^TestDouble_ForeignParticipant$",
	},
	{
		name: "recipe/lock-marker", breaks: "a marker that cannot be deleted ends all contenders of a lock",
		file: "recipes/lock/delay.go",
		edits: []edit{
			{"\t\t\tif i < 0 {\n", "\t\t\tif i >= 0 {\n"},
		},
		tests: "./recipes/lock -run ^TestForeignParticipant$/^marker",
	},
	{
		name: "recipe/lock-list", breaks: "the contenders of a lock cannot be listed if one cannot be read",
		file: "recipes/lock/contenders.go",
		edits: []edit{
			{"err != nil && !request.IsUnreadable(err)", "err != nil"},
		},
		tests: "./recipes/lock -run ^TestForeignParticipant$/^no_right_to_read$",
	},
	{
		name: "recipe/lock-persistent", breaks: "a lock waits for a persistent znode without a warning",
		file: "internal/zk/queue/driver.go",
		edits: []edit{
			{" || r.path == d.persistent {", " || true {"},
		},
		tests: "./recipes/lock -run ^TestForeignParticipant$/^persistent$",
	},
	{
		name: "recipe/lock-persistent-once", breaks: "the warning of a persistent znode is repeated without a right to read it",
		file: "internal/zk/queue/driver.go",
		edits: []edit{
			{" || r.path == d.persistent {", " {"},
		},
		tests: "./recipes/lock -run ^TestForeignParticipant$/^persistent,_no_right_at_all$",
	},
	{
		name: "recipe/revoked-unreadable", breaks: "requests for a release are not noticed after the data of the holder could not be read",
		file: "recipes/lock/revoked.go",
		edits: []edit{
			{"err != nil && !request.IsUnreadable(err)", "err != nil || request.IsUnreadable(err)"},
		},
		tests: "./recipes/lock -run ^TestRevoked_DataIsUnreadable$",
	},
	{
		name: "recipe/counter-set", breaks: "a counter whose data cannot be read cannot be set",
		file: "recipes/counter/value.go",
		edits: []edit{
			{"err != nil && !request.IsUnreadable(err)", "err != nil"},
		},
		tests: "./recipes/counter -run ^TestForeignParticipant$/^too_large_by_Set$",
	},
	{
		name: "recipe/counter-changes", breaks: "the changes of a counter end if its data cannot be read",
		file: "recipes/counter/changes.go",
		edits: []edit{
			{"err != nil && !request.IsUnreadable(err)", "err != nil || request.IsUnreadable(err)"},
		},
		tests: "./recipes/counter -run ^TestForeignParticipant$/^no_right_to_read$",
	},
	{
		name: "recipe/counter-readable", breaks: "the changes of a counter do not contain a value that has become readable",
		file: "recipes/counter/changes.go",
		edits: []edit{
			{" || w.readable != (err == nil)", ""},
		},
		tests: "./recipes/counter -run ^TestChanges_BecomesReadable$",
	},
	{
		name: "recipe/cache-repeat", breaks: "a znode that servers refuse to read is read again only after a change",
		file: "recipes/cache/fetch.go",
		edits: []edit{
			{"if err != nil && err != ErrTooLarge {", "if false && err != nil {"},
		},
		tests: "./recipes/cache -run ^TestFetch_UnreadableZnodes$/^children:_a_final_code$",
	},
	{
		name: "recipe/confirm-late", breaks: "a confirmation counts as missing if it arrives at the time limit",
		file: "internal/limit/limit.go",
		edits: []edit{
			{"	case <-done: // at the same time\n		return true\n", ""},
		},
		tests: "./internal/limit -run ^TestAwait$",
	},
	{
		name: "recipe/queue-late", breaks: "a call after a slow acknowledgement acknowledges the item without its operations",
		file: "recipes/queue/late.go",
		edits: []edit{
			{"		if r.as == c.as && (r.alone || !c.alone) &&", "		if false &&"},
		},
		tests: "./recipes/queue -run ^TestTrap06_AckTakesTooLong$",
	},
	{
		name: "recipe/queue-late-ops", breaks: "Ack returns the success of a call that has not executed its operations",
		file: "recipes/queue/late.go",
		edits: []edit{
			{"(r.alone || !c.alone) && ", ""},
		},
		tests: "./recipes/queue -run ^TestAckAll_TakesTooLong$",
	},
	{
		name: "recipe/queue-late-several", breaks: "repeated calls of AckAll add goroutines while the servers do not answer",
		file: "recipes/queue/late.go",
		edits: []edit{
			{"slices.Equal(r.call, c.call) {", "slices.Equal(r.call, c.call) && len(c.call) == 1 {"},
		},
		tests: "./recipes/queue -run ^TestAckAll_TakesTooLong$",
	},
	{
		name: "recipe/queue-late-settled", breaks: "an acknowledgement fails because of a concurrent call that was too late",
		file: "recipes/queue/late.go",
		edits: []edit{
			{"limit.Await(r.done, end) && errors.Is(r.err, ErrSettled) {", "false && errors.Is(r.err, ErrSettled) {"},
		},
		tests: "./recipes/queue -run ^TestAckAll_TakesTooLong$",
	},
	{
		name: "recipe/queue-skip-session", breaks: "an item is skipped because of one with its name that the servers have lost",
		file: "recipes/queue/listing.go",
		edits: []edit{
			{"		clear(d.skipped)\n", ""},
		},
		tests: "./recipes/queue -run ^TestDataLoss_NameOfSkippedItem$",
	},
	{
		name: "recipe/rC5", breaks: "a deletion is applied while a reply is in flight",
		file: "recipes/cache/updater.go",
		edits: []edit{
			{"} else if !p.inFlight {", "} else {"},
		},
		tests: "./recipes/cache -run ^TestTrap29_DeletionAfterNewerList$",
	},
	{
		name: "recipe/rC6", breaks: "an absence is applied after a later list",
		file: "recipes/cache/apply.go",
		edits: []edit{
			{"if n.parent != nil && n.listedAt > f.sent {", "if false {"},
		},
		tests: "./recipes/cache -run ^TestTrap29_ListBeforeOlderReply$",
	},
}
