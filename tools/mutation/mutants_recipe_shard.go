package main

// shardMutants break rules of package shard.
var shardMutants = []mutant{
	{
		name: "shard/former-leader", breaks: "a former leader can replace the plan of its successor",
		file: "recipes/shard/planner.go",
		edits: []edit{
			{"p.hold.Multi(&zk", "p.group.setup.Conn.Multi(&zk"},
		},
		tests: "./recipes/shard -run ^TestPlanner_FormerLeaderKeepsPlanOfSuccessor$",
	},
	{
		name: "shard/leaves", breaks: "a leader that leaves plans without members",
		file: "recipes/shard/planner.go",
		edits: []edit{
			{"	case ctx.Err() != nil:\n		return now, context.Cause(ctx)\n", ""},
		},
		tests: "./recipes/shard -run ^TestPlanner_LeavingLeaderDoesNotPlan$",
	},
	{
		name: "shard/changed-plan", breaks: "a leader replaces a plan that it has not read",
		file: "recipes/shard/planner.go",
		edits: []edit{
			{"Version: p.stat.Version}", "Version: -1}"},
		},
		tests: "./recipes/shard -run ^TestPlanner_DoesNotReplaceUnreadPlan$",
	},
	{
		name: "shard/deleted-plan", breaks: "all shards move if another program deletes the plan",
		file: "recipes/shard/planner.go",
		edits: []edit{
			{"		case plan.Version >= p.plan.Version:\n", "		default:\n"},
		},
		tests: "./recipes/shard -run ^TestRun_KeepsShardsDespiteForeignWrites$",
	},
	{
		name: "shard/quiet", breaks: "the first member of a group that starts gets all shards",
		file: "recipes/shard/planner.go",
		edits: []edit{
			{"	quietTime    = 250 * time.Millisecond\n", "	quietTime    = 0\n"},
			{"batchTime = 50 * time.Millisecond", "batchTime = 0"},
		},
		tests: "./recipes/shard -run ^TestRun_MovesNoShardsIfMembersStartTogether$",
	},
	{
		name: "shard/round-limit", breaks: "a member that cannot lock its shards stops all moves",
		file: "recipes/shard/planner.go",
		edits: []edit{
			{"return 2 * (p.group.settings.grace", "return 1000 * (p.group.settings.grace"},
		},
		tests: "./recipes/shard -run ^TestRun_MaxMovesLimitsMoves$",
	},
	{
		name: "shard/no-leader", breaks: "shards have no owner if there is no leader",
		file: "recipes/shard/follower.go",
		edits: []edit{
			{"	if c.plan != nil {\n", "	if false {\n"},
		},
		tests: "./recipes/shard -run ^TestRun_DividesShardsWithoutLeader$",
	},
	{
		name: "shard/announced", breaks: "a member that restarts leaves before the plan says so",
		file: "recipes/shard/follower.go",
		edits: []edit{
			{"const plannedLimit = time.Second", "const plannedLimit = time.Nanosecond"},
		},
		tests: "./recipes/shard -run ^TestRun_KeepsOwnersDuringRollingRestart$",
	},
	{
		name: "shard/confirmed", breaks: "a member confirms a plan before it holds the shards",
		file: "recipes/shard/follower.go",
		edits: []edit{
			{"f.confirm && f.held == len(f.mine)", "f.confirm"},
		},
		tests: "./recipes/shard -run ^TestRun_MaxMovesLimitsMoves$",
	},
	{
		name: "shard/stop", breaks: "a member keeps shards that the plan gives to others",
		file: "recipes/shard/follower.go",
		edits: []edit{
			{"		if !f.mine[name] {\n", "		if false {\n"},
		},
		tests: "./recipes/shard -run ^TestRun_ShardsAreDivided$",
	},
	{
		name: "shard/lost", breaks: "a function continues after the shard is lost",
		file: "recipes/shard/lend.go",
		edits: []edit{
			{"connection.Work(s.Context(), m.caller)", "connection.Work(context.Background(), m.caller)"},
		},
		tests: "./recipes/shard -run ^TestRun_CrashMovesShards$",
	},
	{
		name: "shard/not-received", breaks: "a shard that was not received is kept for the grace period",
		file: "recipes/shard/lend.go",
		edits: []edit{
			{"	if finished == nil && !s.delivered.Load() {", "	if false {"},
		},
		tests: "./recipes/shard -run ^TestMember_ReleasesShardThatUserHasNotReceived$",
	},
	{
		name: "shard/received", breaks: "a shard that was received is released at once",
		file: "recipes/shard/follower.go",
		edits: []edit{
			{"			s.delivered.Store(true)\n", "			_ = s\n"},
		},
		tests: "./recipes/shard -run ^TestMember_DeliversOwnedShards$",
	},
	{
		name: "shard/grace", breaks: "a shard is not revoked after the grace period",
		file: "recipes/shard/lend.go",
		edits: []edit{
			{"	case <-time.After(grace):\n		s.revoked.Store(s.Hold.Err() == nil)\n", ""},
		},
		tests: "./recipes/shard -run ^TestRun_RevokesShardAfterGracePeriod$",
	},
	{
		name: "shard/once", breaks: "a function runs twice for a shard",
		file: "recipes/shard/lend.go",
		edits: []edit{
			{"	if interrupt(s.Err()); finished != nil {\n		<-finished\n	}\n", "	interrupt(s.Err())\n"},
		},
		tests: "./recipes/shard -run ^TestRun_RevokesShardAfterGracePeriod$",
	},
	{
		name: "shard/one-lock", breaks: "a member leaves because one shard cannot be locked",
		file: "recipes/shard/lend.go",
		edits: []edit{
			{"		case errors.Is(err, recipes.ErrConnClosed):\n", "		case !errors.Is(err, recipes.ErrSessionExpired):\n"},
		},
		tests: "./recipes/shard -run ^TestRun_MaxMovesLimitsMoves$",
	},
	{
		name: "shard/fewest-moves", breaks: "the larger shares go to members that have fewer shards",
		file: "recipes/shard/quota.go",
		edits: []edit{
			{"if s.held > s.quota {", "if s.held < s.quota {"},
		},
		tests: "./recipes/shard -run ^TestNext_SharesDifferByOne$",
	},
	{
		name: "shard/zones", breaks: "the larger shares can all be in one zone",
		file: "recipes/shard/quota.go",
		edits: []edit{
			{"		z := zones[m.zone]\n", "		m.zone = \"\"\n		z := zones[m.zone]\n"},
		},
		tests: "./recipes/shard -run ^TestNext_ZonesShareEvenly$",
	},
	{
		name: "shard/pins", breaks: "a member with many pins gets other shards in addition",
		file: "recipes/shard/quota.go",
		edits: []edit{
			{"m.pinned > total*m.weight/weights", "false"},
		},
		tests: "./recipes/shard -run ^TestNext_RandomChangesSatisfyRules$",
	},
	{
		name: "shard/max-moves", breaks: "moves in progress do not count",
		file: "recipes/shard/next.go",
		edits: []edit{
			{"if m.Reason.byChoice() && p.inProgress(m) {", "if m.Reason == \"\" {"},
		},
		tests: "./recipes/shard -run ^TestNext_MaxMovesLimitsMoves$",
	},
	{
		name: "shard/away", breaks: "shards of a member that restarts are given to others",
		file: "recipes/shard/next.go",
		edits: []edit{
			{"			p.keeps[m.ID], p.away[m.ID] = true, true\n", "			p.away[m.ID] = true\n"},
		},
		tests: "./recipes/shard -run ^TestNext_MovesNoShardDuringRollingRestart$",
	},
	{
		name: "shard/away-limit", breaks: "a leader with a wrong clock extends the absence of a member",
		file: "recipes/shard/next.go",
		edits: []edit{
			{"!m.Away.IsZero() && m.Away.Before(until)", "!m.Away.IsZero()"},
		},
		tests: "./recipes/shard -run ^TestNext_MovesShardsAfterRestartDelay$",
	},
	{
		name: "shard/pause", breaks: "shards move although rebalancing is paused",
		file: "recipes/shard/next.go",
		edits: []edit{
			{"	if !spec.PauseRebalancing {\n", "	if true {\n"},
		},
		tests: "./recipes/shard -run ^TestNext_AppliesSettingsOfSpec$",
	},
	{
		name: "shard/spec-size", breaks: "a Spec is accepted whose plan does not fit into a znode",
		file: "recipes/shard/spec.go",
		edits: []edit{
			{"len(text)+placeSize*len(s.Shards) > maxSpecSize", "len(text) > maxSpecSize"},
		},
		tests: "./recipes/shard -run ^TestNormalize_SortsShardsAndRejectsInvalidSpec$",
	},
	{
		name: "shard/ends-while-joining", breaks: "a member remains although Run has returned",
		file: "recipes/shard/group.go",
		edits: []edit{
			{"case err != nil && ctx.Err() != nil:", "case ctx.Err() != nil:"},
		},
		tests: "./recipes/shard -run ^TestRun_LeavesGroupIfContextEndsWhileJoining$",
	},
	{
		name: "shard/invalid-name", breaks: "a name that cannot be locked ends every member",
		file: "recipes/shard/lend.go",
		edits: []edit{
			{"\t\t<-ctx.Done()\n\t\treturn nil\n\t}\n\tbegan", "\t\treturn err\n\t}\n\tbegan"},
		},
		tests: "./recipes/shard -run ^TestRun_ContinuesDespiteInvalidShardName$",
	},
	{
		name: "shard/lost-reported", breaks: "a lost shard counts as owned until its release is confirmed",
		file: "recipes/shard/lend.go",
		edits: []edit{
			{"\tover() // call over first", "\tdefer over() // first"},
		},
		tests: "./recipes/shard -run ^TestMember_LostShardsAreNotOwned$",
	},
	{
		name: "shard/large-plan", breaks: "the names of removed shards prevent the next plan",
		file: "recipes/shard/plan.go",
		edits: []edit{
			{"len(data) <= maxPlanSize", "len(data) > 0"},
		},
		tests: "./recipes/shard -run ^TestPlanner_OmitsRemovedShardsThatDoNotFit$",
	},
	{
		name: "shard/foreign-record", breaks: "a znode that is not of a member gets shards",
		file: "recipes/shard/planner.go",
		edits: []edit{
			{"m.Err != nil, m.Session == 0, ", "m.Err != nil, "},
		},
		tests: "./recipes/shard -run ^TestRecordsOf_IgnoresForeignZnodes$",
	},
	{
		name: "shard/versions", breaks: "another program can use up the versions of plans",
		file: "recipes/shard/plan.go",
		edits: []edit{
			{"return n >= 0 && n < 1<<60", "return true"},
		},
		tests: "./recipes/shard -run ^TestDecodePlan_RejectsLastVersion$",
	},
	{
		name: "shard/foreign-spec", breaks: "an invalid Spec of another program takes all shards away",
		file: "recipes/shard/planner.go",
		edits: []edit{
			{"if err := c.Value.normalize(); err != nil {", "if err := error(nil); err != nil {"},
		},
		tests: "./recipes/shard -run ^TestRun_KeepsShardsDespiteForeignWrites$",
	},
	{
		name: "shard/foreign-znode", breaks: "a znode that is not of a member keeps all members on computed plans",
		file: "recipes/shard/follower.go",
		edits: []edit{
			{"c.differs = computed.Version != plan.Version; c", "c"},
		},
		tests: "./recipes/shard -run ^TestGroup_CompareIgnoresForeignZnodes$",
	},
	{
		name: "shard/permission", breaks: "a leader that must not write plans remains the leader",
		file: "recipes/shard/planner.go",
		edits: []edit{
			{", errors.Is(err, recipes.ErrPermission):\n", ":\n"},
		},
		tests: "./recipes/shard -run ^TestPlanner_ReturnsErrPermission$",
	},
	{
		name: "shard/taken-over", breaks: "a process whose ID was taken over contends for the shards of its successor",
		file: "recipes/shard/follower.go",
		edits: []edit{
			{"owner == id && !f.taken", "owner == id"},
		},
		tests: "./recipes/shard -run ^TestRun_WaitsWhileOtherProcessHasSameID$",
	},
}
