package main

// queueMutants break rules of the driver of the state machine of contenders.
var queueMutants = []mutant{
	{
		name: "queue/deferred", breaks: "a reply is lost if the contender leaves because of an event that precedes it",
		file: "internal/zk/queue/inputs.go",
		edits: []edit{
			{"	case d.deferred != nil:", "	case false:"},
		},
		tests: "./internal/zk/queue -run ^TestNext_ReturnsDeferredReply$",
	},
	{
		name: "queue/plain/delete", breaks: "a contender deletes the znode of another session with the same name",
		file: "internal/zk/queue/plain.go",
		edits: []edit{
			{"\tcase !registered || !owned:", "\tcase !registered && !owned:"},
		},
		tests: "./internal/zk/queue -run ^TestPlainContender_IgnoresZnodesOfRecreatedQueue$",
	},
	{
		name: "queue/plain/search", breaks: "a contender takes the znode of another session with the same name for its own",
		file: "internal/zk/queue/plain.go",
		edits: []edit{
			{"return c.cfg.isOwnedByCurrentSession(name)", "return true, nil"},
		},
		tests: "./internal/zk/queue -run ^TestPlainContender_IgnoresZnodesOfRecreatedQueue$",
	},
}
