package main

// contenderEndMutants break rules of the state machine of contenders that concern a contender whose
// turn has come, or the end of a contender.
var contenderEndMutants = []mutant{
	{
		name: "contender/over/session", breaks: "a change of the session is ignored",
		file: "internal/zk/contender/contender.go",
		edits: []edit{
			{`	case c.znode.session != 0 && c.conn.Session != c.znode.session:
		return connection.ErrSessionExpired
`, ""},
		},
		tests: "./internal/zk/contender -run ^TestExplore_ReplacedSession$",
	},
	{
		name: "contender/reason/session", breaks: "the expiry of an unknown session is reported as a deletion",
		file: "internal/zk/contender/leave.go",
		edits: []edit{
			{`	case c.znode.session == 0:
		c.leave(connection.ErrSessionExpired, false) // the session has changed during the create
`, ""},
		},
		tests: "./internal/zk/contender -run ^TestExplore_AllFaults$",
	},
	{
		name: "contender/reason/over", breaks: "the reason of a deletion is found in another session",
		file: "internal/zk/contender/leave.go",
		edits: []edit{
			{`	case c.over() != nil:
		c.leave(c.over(), false) // the expiry has deleted the znode, before the contender noticed the expiry
`, ""},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Expiry$",
	},
	{
		name: "contender/reason/queue", breaks: "a missing queue is not the reason of a deletion",
		file: "internal/zk/contender/leave.go",
		edits: []edit{
			{`	case reply.QueueCzxid == 0, c.isOther(reply.QueueCzxid):
		c.leave(c.noQueue(), false)
`, ""},
		},
		tests: "./internal/zk/contender -run ^TestExplore_DeletedQueue$",
	},
	{
		name: "contender/lost", breaks: "the reason of a deletion is not looked for",
		file: "internal/zk/contender/contender.go",
		edits: []edit{
			{`			c.send(FindReason, "")
`, ""},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Operator$",
	},
	{
		name: "contender/leave/delete", breaks: "the contender's znode is not deleted",
		file: "internal/zk/contender/leave.go",
		edits: []edit{
			{`		if r := c.send(Delete, c.znode.name); r != nil {
			r.Last, r.Err = true, c.reason
		}
`, "\t\tc.finish(nil)\n"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_NoFaults$",
	},
	{
		name: "contender/hold/plain", breaks: "a name without a GUID is not confirmed after a break",
		file: "internal/zk/contender/hold.go",
		edits: []edit{
			{"	c.confirmOwn()\n", ""},
		},
		tests: "./internal/zk/contender -run ^TestHold_LostIfNameIsUsedAgain$",
	},
	{
		name: "contender/leave/plain", breaks: "a znode of an earlier session is deleted by a name that another contender can have",
		file: "internal/zk/contender/knowledge.go",
		edits: []edit{
			{`	if c.cfg.Naming.HasGUID() {
		c.creates.outlived = c.znode.name
	}
`, `	c.creates.outlived = c.znode.name
`},
		},
		tests: "./internal/zk/contender -run ^TestStep_AnotherSession_PlainName$",
	},
	{
		name: "contender/leave/pending", breaks: "the reply to a create is not awaited",
		file: "internal/zk/contender/leave.go",
		edits: []edit{
			{"\tcase c.pending.has(Create), c.pending.has(Delete), c.pending.has(Search):", "\tcase c.pending.has(Delete), c.pending.has(Search):"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_NoFaults$",
	},
	{
		name: "contender/leave/search", breaks: "other znodes of the contender are not searched for",
		file: "internal/zk/contender/leave.go",
		edits: []edit{
			{"c.search(true)", "c.finish(nil)"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Breaks$",
	},
	{
		name: "contender/leave/lost", breaks: "a deletion without a reply counts",
		file: "internal/zk/contender/leave.go",
		edits: []edit{
			{`	case errors.Is(reply.Err, ErrLost): // remove sends the deletion again
`, `	case errors.Is(reply.Err, ErrLost):
		c.finish(nil)
`},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Breaks$",
	},
	{
		name: "contender/leave/found", breaks: "only the first of the znodes found is deleted",
		file: "internal/zk/contender/leave.go",
		edits: []edit{
			{"\t\tif c.creates.found = c.creates.found[1:]; len(c.creates.found) == 0 {", "\t\tif c.creates.found = nil; len(c.creates.found) == 0 {"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_LateCreates$",
	},
	{
		name: "contender/leave/failed", breaks: "an orphan whose deletion failed is forgotten",
		file: "internal/zk/contender/leave.go",
		edits: []edit{
			{`		c.creates.orphans = append(c.creates.orphans, r.Name)
`, ""},
		},
		tests: "./internal/zk/contender -run ^TestExplore_LateCreates$",
	},
	{
		name: "contender/leave/report", breaks: "a contender that leaves does not report it first",
		file: "internal/zk/contender/leave.go",
		edits: []edit{
			{`	c.report(State{Err: reason})
	c.prove(false)
`, `	c.prove(false)
`},
		},
		tests: "./internal/zk/contender -run ^TestExplore_NoFaults$",
	},
	{
		name: "contender/hold/proven", breaks: "the end of the lease is not reported",
		file: "internal/zk/contender/hold.go",
		edits: []edit{
			{"s.Proven = c.conn.Lapses, c.conn.Proven", "s.Proven = c.conn.Lapses, true"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Expiry$",
	},
	{
		name: "contender/hold/lapses", breaks: "a lease that has ended and is valid again is not reported",
		file: "internal/zk/contender/hold.go",
		edits: []edit{
			{"\tif c.reported.Proven && c.lease.lapses != c.conn.Lapses {", "\tif false {"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Leases$",
	},
	{
		name: "contender/hold/missing", breaks: "a check without the znode is ignored during the turn",
		file: "internal/zk/contender/hold.go",
		edits: []edit{
			{"\tif c.conn.Missing && c.znode.renamingTo == \"\" {", "\tif false {"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_LostWatches$",
	},
	{
		name: "contender/hold/own", breaks: "the leader of an election does not watch its znode",
		file: "internal/zk/contender/hold.go",
		edits: []edit{
			{"\t\tc.readOwn()\n", ""},
		},
		tests: "./internal/zk/contender -run ^TestJoin_AloneIsFirst$",
	},
	{
		name: "contender/prepare/election", breaks: "a candidate far back in the queue never prepares for its turn",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"c.cfg.Admit == nil && c.queue.place != next:", "c.cfg.Admit == nil && c.cfg.Lookahead == 0 && c.queue.place != next:"},
		},
		tests: "./internal/zk/contender -run ^TestWait_PreparesLaterBehindMany$",
	},
	{
		name: "contender/hold/prove", breaks: "no lease is requested during the turn",
		file: "internal/zk/contender/hold.go",
		edits: []edit{
			{`	c.prove(true)
`, ""},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Leases$",
	},
}
