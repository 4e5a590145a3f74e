package main

// recipeMutants break rules that several recipes have in common.
var recipeMutants = []mutant{
	{
		name: "recipe/X1", breaks: "the reply that a session has moved counts as final",
		file: "internal/zk/connection/errors.go",
		edits: []edit{
			{`"SESSIONMOVED", ClassTransient,`, `"SESSIONMOVED", ClassFinal,`},
		},
		tests: "./internal/zk/queue -run ^TestContender_KeepsOneZnodeIfSessionMovesDuringCreate$",
	},
	{
		name: "recipe/cause-barrier", breaks: "a client passes a barrier because the cause of its context is that a znode does not exist",
		file: "internal/zk/connection/errors.go",
		edits: []edit{
			{"return errors.Is(err, zk.ErrNoNode) && !IsCause(ctx, err)", "return errors.Is(err, zk.ErrNoNode)"},
		},
		tests: "./recipes -run ^TestCalls_DistinguishContextCauseFromAnswer$/^barrier,_wait$",
	},
	{
		name: "recipe/cause-znode", breaks: "a znode remains in a session that lives because the cause of a context is taken for its absence",
		file: "internal/zk/ephemeral/claim.go",
		edits: []edit{
			{"		case connection.IsCause(ctx, err):\n			return sent, err\n", ""},
		},
		tests: "./recipes -run ^TestCalls_DistinguishContextCauseFromAnswer$/^single$",
	},
	{
		name: "removal/queue", breaks: "a znode whose deletion is rejected for a moment blocks a lock as long as its session lives",
		file: "internal/zk/queue/requests.go",
		edits: []edit{
			{"go deleteLater(r.cfg, res.path)", "_ = deleteLater"},
		},
		tests: "./internal/testenv/eachrequest -run ^TestScripts_RetryRejectedRemovals$",
	},
	{
		name: "removal/ephemeral", breaks: "the znode of a member whose deletion is rejected for a moment remains as long as its session lives",
		file: "internal/zk/ephemeral/claim.go",
		edits: []edit{
			{`		c.removing = true
		go c.removeLater()
`, "\t\t_ = c.removeLater\n"},
		},
		tests: "./internal/testenv/eachrequest -run ^TestScripts_RetryRejectedRemovals$",
	},
	{
		name: "znode/parents", breaks: "the parents of the node of a recipe remain after it was deleted",
		file: "internal/zk/connection/znode.go",
		edits: []edit{
			{"path.Dir(node), acl, true)", "path.Dir(node), acl, false)"},
		},
		tests: "./internal/zk/connection -run ^TestMakeZnode_CreatesParentsAsContainers$",
	},
	{
		name: "znode/characters", breaks: "a path with a character above U+FFFF is sent to the servers",
		file: "internal/zk/connection/znode.go",
		edits: []edit{
			{"|| r >= 0xfff0", "|| r >= 0xfff0 && r <= 0xffff"},
		},
		tests: ". -run ^TestCheckNode_AcceptsOnlyValidPaths$",
	},
	{
		name: "znode/length", breaks: "a path is accepted with which transactions become larger than servers accept",
		file: "internal/zk/connection/znode.go",
		edits: []edit{
			{"case len(node) > maxPath:", "case false:"},
		},
		tests: ". -run ^TestCheckNode_AcceptsOnlyValidPaths$",
	},
	{
		name: "recipe/rO1", breaks: "a batch is retried although the lost request may still be applied",
		file: "internal/zk/txn/record.go",
		edits: []edit{
			{`		stat, err = conn.Set(r.path, r.nextID(), r.version)
`, `		r.nextID()
		return nil, nil
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
		tests: "./internal/zk/txn -run ^TestTransaction_FailsWithOtherRecord$",
	},
	{
		name: "recipe/txn-session", breaks: "a transaction that may have been applied in a lost session is retried",
		file: "internal/zk/txn/record.go",
		edits: []edit{
			{"case lost && conn.SessionID() != session:", "case session == -1:"},
		},
		tests: "./internal/zk/txn -run ^TestCreatesDir_OutcomeIsUnknownIfSessionExpires$",
	},
	{
		name: "recipe/large", breaks: "a reply that is too large is not recognized",
		file: "internal/zk/connection/request.go",
		edits: []edit{
			{"refuse := replySize(stat, p.children) > s.limit", "refuse := false"},
		},
		tests: "./internal/zk/connection -run TooLarge",
	},
	{
		name: "recipe/unreadable-predecessor", breaks: "a contender that must not read its predecessor ends",
		file: "internal/zk/queue/requests.go",
		edits: []edit{
			{"	if what == watch.Data && connection.IsUnreadable(err) {", "	if false && connection.IsUnreadable(err) {"},
		},
		tests: ". -run ^TestElectLeader_FollowsUnusualForeignCandidates$",
	},
	{
		name: "recipe/unreadable-doubt", breaks: "a contender waits for an event of a znode that it must not read",
		file: "internal/zk/watch/read.go",
		edits: []edit{
			{" || errors.Is(r.err, zk.ErrNoAuth)", ""},
		},
		tests: ". -run ^TestElectLeader_FollowsUnusualForeignCandidates$",
	},
	{
		name: "recipe/confirm-late", breaks: "a confirmation counts as missing if it arrives at the time limit",
		file: "candidacy/limit/limit.go",
		edits: []edit{
			{"	case <-done: // done may have been closed when the timer fired\n		return true\n", ""},
		},
		tests: "./candidacy/limit -run ^TestAwait_ReportsDoneEvenAfterEnd$",
	},
}
