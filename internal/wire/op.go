package wire

import "strconv"

// Op is an operation code of the protocol.
type Op int32

// The operation codes. Connect is not part of the protocol: it represents the handshake, which contains no header.
const (
	Notification         Op = 0
	Create               Op = 1
	Delete               Op = 2
	Exists               Op = 3
	GetData              Op = 4
	SetData              Op = 5
	GetACL               Op = 6
	SetACL               Op = 7
	GetChildren          Op = 8
	Sync                 Op = 9
	Ping                 Op = 11
	GetChildren2         Op = 12
	Check                Op = 13
	Multi                Op = 14
	Create2              Op = 15
	Reconfig             Op = 16
	CheckWatches         Op = 17
	RemoveWatches        Op = 18
	CreateContainer      Op = 19
	DeleteContainer      Op = 20
	CreateTTL            Op = 21
	MultiRead            Op = 22
	Auth                 Op = 100
	SetWatches           Op = 101
	SASL                 Op = 102
	GetEphemerals        Op = 103
	GetAllChildrenNumber Op = 104
	SetWatches2          Op = 105
	AddWatch             Op = 106
	WhoAmI               Op = 107
	CreateSession        Op = -10
	CloseSession         Op = -11
	Error                Op = -1
	Connect              Op = -100
)

var opNames = map[Op]string{
	Notification: "notification", Create: "create", Delete: "delete", Exists: "exists",
	GetData: "getData", SetData: "setData", GetACL: "getACL", SetACL: "setACL",
	GetChildren: "getChildren", Sync: "sync", Ping: "ping", GetChildren2: "getChildren2",
	Check: "check", Multi: "multi", Create2: "create2", Reconfig: "reconfig",
	CheckWatches: "checkWatches", RemoveWatches: "removeWatches",
	CreateContainer: "createContainer", DeleteContainer: "deleteContainer",
	CreateTTL: "createTTL", MultiRead: "multiRead", Auth: "auth", SetWatches: "setWatches",
	SASL: "sasl", GetEphemerals: "getEphemerals", GetAllChildrenNumber: "getAllChildrenNumber",
	SetWatches2: "setWatches2", AddWatch: "addWatch", WhoAmI: "whoAmI",
	CreateSession: "createSession", CloseSession: "closeSession", Error: "error", Connect: "connect",
}

// String returns the usual name of the operation, for example "getData".
func (o Op) String() string {
	if s, ok := opNames[o]; ok {
		return s
	}
	return "op " + strconv.Itoa(int(o))
}

// Writes reports whether a server forwards the operation to the leader.
func (o Op) Writes() bool {
	switch o {
	case Create, Delete, SetData, SetACL, Check, Multi, Create2, Reconfig, CreateContainer,
		DeleteContainer, CreateTTL, CreateSession, CloseSession, Sync, Connect:
		return true
	}
	return false
}
