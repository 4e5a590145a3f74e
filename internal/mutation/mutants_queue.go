package main

// queueMutants break rules of the driver of the state machine of contenders.
var queueMutants = []mutant{
	{
		name: "queue/deferred", breaks: "a reply is lost if the contender leaves because of an event that precedes it",
		file: "internal/zk/queue/wait.go",
		edits: []edit{
			{"	if f := d.nextReady(); f != nil {\n\t\treturn f\n\t}\n", ""},
		},
		tests: "./internal/zk/queue -run ^TestNextReply_AfterEventOfOwnZnode$",
	},
}
