package main

// contenderMutants break rules of the state machine of contenders. The exploration of its states or a
// unit test finds each of these mutants.
var contenderMutants = []mutant{
	{
		name: "contender/succeeds/gone", breaks: "the turn comes while the predecessor exists",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"c.queue.place == next && c.queue.predecessor.znode == deletedSafely", "c.queue.place == next"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_NoFaults$",
	},
	{
		name: "contender/succeeds/safe", breaks: "the deletion of a predecessor of the same session brings the turn",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"c.queue.predecessor.znode == deletedSafely && c.watches", "c.queue.predecessor.gone() && c.watches"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_SharedSession$",
	},
	{
		name: "contender/succeeds/own", breaks: "the turn comes although the contender's znode may have been deleted",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{" && c.watches.own == certain && c.conn.Up", " && c.conn.Up"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Operator$",
	},
	{
		name: "contender/succeeds/doubt", breaks: "the turn comes although the watch on the contender's znode may not be set",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"c.watches.own == certain && c.conn.Up", "c.watches.own != notWatched && c.conn.Up"},
		},
		tests: "./internal/zk/contender -run ^TestSucceeds_OwnWatchInDoubt$",
	},
	{
		name: "contender/succeeds/listing", breaks: "a listing that may show the end of the queue is not awaited",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{` &&
		!c.pending.has(List)
`, `
`},
		},
		tests: "./internal/zk/contender -run ^TestExplore_DeletedQueue$",
	},
	{
		name: "contender/succeeds/next", breaks: "the deletion of the predecessor brings the turn although others come before",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"\treturn c.queue.place == next && c.queue", "\treturn c.queue.place != unlisted && c.queue"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_NoFaults$",
	},
	{
		name: "contender/next/behind", breaks: "a contender is reported as the next one although others come before",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"Next: c.queue.place == next", "Next: true"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_NoFaults$",
	},
	{
		name: "contender/next/unreported", breaks: "a contender that becomes the next one does not report it",
		file: "internal/zk/contender/contender.go",
		edits: []edit{
			{"\tif s.Err != nil || s != c.reported {", "\tc.reported.Next = s.Next\n\tif s.Err != nil || s != c.reported {"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_NoFaults$",
	},
	{
		name: "contender/reset/own", breaks: "the watch on the contender's znode counts after a reconnect",
		file: "internal/zk/contender/knowledge.go",
		edits: []edit{
			{`	c.watches.own, c.watches.queue = notWatched, false
`, `	c.watches.queue = false
`},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Operator$",
	},
	{
		name: "contender/reset/predecessor", breaks: "the watch on the predecessor counts after a reconnect",
		file: "internal/zk/contender/knowledge.go",
		edits: []edit{
			{`	c.queue.predecessor.unwatch()
`, ""},
		},
		tests: "./internal/zk/contender -run ^TestExplore_LostWatches$",
	},
	{
		name: "contender/reset/before", breaks: "the watch before the predecessor counts after a reconnect",
		file: "internal/zk/contender/knowledge.go",
		edits: []edit{
			{`	c.queue.before.unwatch()
`, ""},
		},
		tests: "./internal/zk/contender -run ^TestExplore_LostWatches$",
	},
	{
		name: "contender/reset/none", breaks: "watches are not set again after a reconnect",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"\tif c.conn.Up && c.conn.Epoch != c.watches.epoch {", "\tif false {"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_LostWatches$",
	},
	{
		name: "contender/doubt", breaks: "watches in doubt are not set again",
		file: "internal/zk/contender/knowledge.go",
		edits: []edit{
			{`		if c.phase == queued {
			c.resetWatches()`, `		if false {
			c.resetWatches()`},
		},
		tests: "./internal/zk/contender -run ^TestExplore_LostWatches$",
	},
	{
		name: "contender/position/before", breaks: "a listing from before a deletion counts",
		file: "internal/zk/contender/knowledge.go",
		edits: []edit{
			{`	if c.queue.before.gone() {
`, `	if false {
`},
		},
		tests: "./internal/zk/contender -run ^TestExplore_LaggingServer$",
	},
	{
		name: "contender/found/one", breaks: "the queue is listed for each child that is not a contender",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"r.Names = c.queue.unverified", "r.Names = c.queue.unverified[:1]"},
		},
		tests: "./internal/zk/contender -run ^TestFindContender_ChecksOnlyUnrecognizedNames$",
	},
	{
		name: "contender/event/before", breaks: "the deletion of the contender before the predecessor is ignored",
		file: "internal/zk/contender/contender.go",
		edits: []edit{
			{`			if deleted {
				c.listAgain()
			}
`, ""},
		},
		tests: "./internal/zk/contender -run ^TestExplore_NoFaults$",
	},
	{
		name: "contender/other/version", breaks: "a write before the watch was set is ignored",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"\t\tif reply.Version > 0 && (c.pending", "\t\tif false && (c.pending"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_DeletedQueue$",
	},
	{
		name: "contender/other/pending", breaks: "a write is ignored while a listing is outstanding",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"(c.pending.has(List) || r.Kind == ReadPredecessor &&", "(r.Kind == ReadPredecessor &&"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_DeletedQueue$",
	},
	{
		name: "contender/other/missing", breaks: "a missing predecessor brings the turn although the queue may have ended",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"r.Kind == ReadBefore || c.cfg.Tombstone != \"\" {", "r.Kind == ReadBefore {"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_DeletedQueue$",
	},
	{
		name: "contender/other/epoch", breaks: "a watch that was set before a reconnect counts",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{`		if r.Epoch != c.conn.Epoch {
			return
		}
		o.znode`, "\t\to.znode"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_LostWatches$",
	},
	{
		name: "contender/own/epoch", breaks: "the watch on the contender's znode that was set before a reconnect counts",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{`		case r.Epoch != c.conn.Epoch:
			c.watches.own = notWatched
`, ""},
		},
		tests: "./internal/zk/contender -run ^TestExplore_LostWatches$",
	},
	{
		name: "contender/own/missing", breaks: "the contender's missing znode is ignored",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{`	case errors.Is(reply.Err, zk.ErrNoNode):
		c.lose()
	case reply.Err != nil:
		c.leave(reply.Err, false)
	case reply.Owner`, `	case errors.Is(reply.Err, zk.ErrNoNode):
	case reply.Err != nil:
		c.leave(reply.Err, false)
	case reply.Owner`},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Operator$",
	},
	{
		name: "contender/list/absent", breaks: "a listing without the contender's znode counts",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{`	case !n.present:
`, `	case false:
`},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Operator$",
	},
	{
		name: "contender/list/ended", breaks: "the tombstone is ignored",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{`	case n.ended:
`, `	case false:
`},
		},
		tests: "./internal/zk/contender -run ^TestExplore_DeletedQueue$",
	},
	{
		name: "contender/list/queue", breaks: "a queue that was made again counts",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"reply.Err == nil && c.isOther(reply.QueueCzxid):", "false:"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_DeletedQueue$",
	},
	{
		name: "contender/list/joined", breaks: "a contender that has joined a queue that was made again ends",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"&& c.joinedOther(reply.Names):", "&& false:"},
		},
		tests: "./internal/zk/contender -run ^TestJoin_QueueMayVanish$",
	},
	{
		name: "contender/list/unconfirmed", breaks: "a contender that has joined another queue than a lagging server has shown ends",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"c.noQueueToJoin(c.cfg.QueueMayVanish || c.cfg.QueueUnconfirmed)", "c.noQueueToJoin(c.cfg.QueueMayVanish)"},
		},
		tests: "./internal/zk/contender -run ^TestJoin_QueueUnconfirmed$",
	},
	{
		name: "contender/create/other-queue", breaks: "a contender that is alone in another queue than its own has its turn",
		file: "internal/zk/contender/join.go",
		edits: []edit{
			{"reply.Alone && !c.isOther(reply.QueueCzxid) {", "reply.Alone {"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_DeletedQueue$",
	},
	{
		name: "contender/search/no-queue", breaks: "an ended queue in which a create was applied is made again",
		file: "internal/zk/contender/join.go",
		edits: []edit{
			{"c.leave(c.noQueue(), false) // the create may", "c.leave(c.noQueueToJoin(c.cfg.QueueMayVanish), false) // the create may"},
		},
		tests: "./internal/zk/contender -run ^TestJoin_QueueMayVanish$",
	},
	{
		name: "contender/search/queued", breaks: "a queued contender that searches for orphans in a deleted queue leaves with the error of ZooKeeper",
		file: "internal/zk/contender/join.go",
		edits: []edit{
			{"\tcase missing:\n\t\tc.leave(c.noQueue()", "\tcase missing && c.phase == joining:\n\t\tc.leave(c.noQueue()"},
		},
		tests: "./internal/zk/contender -run ^TestReceive_Rejections$",
	},
	{
		name: "contender/list/prefixes", breaks: "the orphans of a contender count",
		file: "internal/zk/contender/naming.go",
		edits: []edit{
			{"\t\treturn c.creates.prefixes\n", "\t\treturn nil\n"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_LateCreates$",
	},
	{
		name: "contender/list/orphans", breaks: "the orphans of a contender are not deleted",
		file: "internal/zk/contender/knowledge.go",
		edits: []edit{
			{"\tif len(c.creates.orphans) > 0 && c.send", "\tif false && c.send"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_LateCreates$",
	},
	{
		name: "contender/wait/token", breaks: "the turn comes before the token is known",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"c.queue.place == unlisted || c.znode.token == 0 ||", "c.queue.place == unlisted ||"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_NoFaults$",
	},
	{
		name: "contender/wait/again", breaks: "a contender whose predecessor has departed does not list",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{`		c.sendList(c.queue.list)
		return
`, `		return
`},
		},
		tests: "./internal/zk/contender -run ^TestExplore_SharedSession$",
	},
	{
		name: "contender/wait/ephemeral", breaks: "a persistent znode counts as a contender",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"!Recognized(r.Name) && !reply.Ephemeral:", "!Recognized(r.Name) && false:"},
		},
		tests: "./internal/zk/contender -run ^TestFindContender_ChecksOnlyUnrecognizedNames$",
	},
	{
		name: "contender/wait/ignored", breaks: "an ignored child still counts",
		file: "internal/zk/contender/knowledge.go",
		edits: []edit{
			{"c.queue.ignored = append(c.queue.ignored, strings.Clone(name))", "_ = strings.Clone(name)"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_OtherClients$",
	},
	{
		name: "contender/wait/standby", breaks: "the time for which a lease is kept in advance begins before the contender is next",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"if c.queue.place == next && c.lease.proving && c.cfg.Standby > 0", "if c.lease.proving && c.cfg.Standby > 0"},
		},
		tests: "./internal/zk/contender -run ^TestWait_ContenderInTheMiddleLeaves$",
	},
	{
		name: "contender/send/twice", breaks: "a request is repeated while its reply is outstanding",
		file: "internal/zk/contender/contender.go",
		edits: []edit{
			{`	if c.pending.has(kind) {
		return nil
	}
`, ""},
		},
		tests: "./internal/zk/contender -run ^TestExplore_NoFaults$",
	},
	{
		name: "contender/event/safe", breaks: "an unsafe deletion counts as safe",
		file: "internal/zk/contender/knowledge.go",
		edits: []edit{
			{`	default:
		o.znode = deleted
`, `	default:
		o.znode = deletedSafely
`},
		},
		tests: "./internal/zk/contender -run ^TestExplore_SharedSession$",
	},
	{
		name: "contender/event/own", breaks: "the deletion of the contender's znode is ignored",
		file: "internal/zk/contender/contender.go",
		edits: []edit{
			{`		case deleted:
			c.lose()
`, `		case deleted:
`},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Operator$",
	},
	{
		name: "contender/event/watched", breaks: "a watch that has fired counts as set",
		file: "internal/zk/contender/knowledge.go",
		edits: []edit{
			{`	case in.Err == nil:
		o.znode = unread
`, `	case in.Err == nil:
`},
		},
		tests: "./internal/zk/contender -run ^TestExplore_DeletedQueue$",
	},
	{
		name: "contender/join/prefix", breaks: "a create without a reply is forgotten",
		file: "internal/zk/contender/join.go",
		edits: []edit{
			{`	case errors.Is(reply.Err, ErrLost):
		c.creates.prefixes = append(c.creates.prefixes, reply.Prefix)
`, `	case errors.Is(reply.Err, ErrLost):
`},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Breaks$",
	},
	{
		name: "contender/join/exhausted", breaks: "the greatest sequence number counts",
		file: "internal/zk/contender/join.go",
		edits: []edit{
			{"\tcase c.cfg.Naming.isExhausted(c.znode.name):", "\tcase false:"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_LastNumber$",
	},
	{
		name: "contender/join/alone", breaks: "a contender that is not alone has its turn",
		file: "internal/zk/contender/join.go",
		edits: []edit{
			{"\t\tif reply.Alone && !c.isOther(reply.QueueCzxid) {", "\t\tif c.znode.token != 0 {"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Locks$",
	},
	{
		name: "contender/predicted/turn", breaks: "the departure of the predicted predecessor brings the turn without a listing",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"if c.queue.place == First || c.succeeds() {", "if c.queue.place == First || c.queue.place == predicted && c.queue.predecessor.gone() || c.succeeds() {"},
		},
		tests: "./internal/zk/contender -run ^TestExplore_Locks$",
	},
	{
		name: "contender/predicted/missing", breaks: "a contender requests a lease if its predicted predecessor does not exist",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"errors.Is(reply.Err, zk.ErrNoNode) && c.queue.place == predicted:", "false:"},
		},
		tests: "./internal/zk/contender -run ^TestJoin_Predicted$",
	},
	{
		name: "contender/rotation/reliable", breaks: "predictions are used although the last one was wrong",
		file: "internal/zk/queue/rotation.go",
		edits: []edit{
			{" || !r.reliable || others <= 1", " || others <= 1"},
		},
		tests: "./internal/zk/queue -run ^TestRotation_PredictsPredecessors$",
	},
	{
		name: "contender/rotation/blocks", breaks: "a reader waits for the reader that its RWMutex predicts",
		file: "internal/zk/queue/rotation.go",
		edits: []edit{
			{"blocks != nil && !blocks(r.predicted)", "false"},
		},
		tests: "./recipes/lock -run ^TestRWMutex_ReaderDoesNotWaitForPredictedReader$",
	},
	{
		name: "contender/rotation/refuted", breaks: "predictions are used although the last one was wrong and the contender had no predecessor",
		file: "internal/zk/queue/rotation.go",
		edits: []edit{
			{"r.reliable = false // until", "// until"},
		},
		tests: "./internal/zk/queue -run ^TestRotation_PredictsPredecessors$",
	},
	{
		name: "contender/rotation/second", breaks: "a contender that could be prepared for its turn predicts its predecessor",
		file: "internal/zk/queue/rotation.go",
		edits: []edit{
			{" || !r.reliable || others <= 1", " || !r.reliable"},
		},
		tests: "./internal/zk/queue -run ^TestRotation_PredictsNothingBehindOneContender$",
	},
	{
		name: "contender/own/plain", breaks: "the znode of another contender with the same name is taken for the own one",
		file: "internal/zk/contender/wait.go",
		edits: []edit{
			{"!c.cfg.Naming.HasGUID() && reply.Err == nil && c.znode", "false && reply.Err == nil && c.znode"},
		},
		tests: "./internal/zk/contender -run ^TestHold_LostIfNameIsUsedAgain$",
	},
}
