package zktest

import "github.com/go-leaderelection/leaderelection/internal/wire"

// Op is an operation of the protocol. Its String method returns the usual name of the
// operation.
type Op = wire.Op

// These are the operations that hooks match and that the request log contains. OpConnect is the
// handshake of a connection, OpNotification is a watch event that was sent, and OpAny matches every
// request.
const (
	OpAny                  = Op(0)
	OpNotification         = wire.Notification
	OpCreate               = wire.Create
	OpDelete               = wire.Delete
	OpExists               = wire.Exists
	OpGetData              = wire.GetData
	OpSetData              = wire.SetData
	OpGetACL               = wire.GetACL
	OpSetACL               = wire.SetACL
	OpGetChildren          = wire.GetChildren
	OpSync                 = wire.Sync
	OpPing                 = wire.Ping
	OpGetChildren2         = wire.GetChildren2
	OpCheck                = wire.Check
	OpMulti                = wire.Multi
	OpCreate2              = wire.Create2
	OpReconfig             = wire.Reconfig
	OpCheckWatches         = wire.CheckWatches
	OpRemoveWatches        = wire.RemoveWatches
	OpCreateContainer      = wire.CreateContainer
	OpDeleteContainer      = wire.DeleteContainer
	OpCreateTTL            = wire.CreateTTL
	OpMultiRead            = wire.MultiRead
	OpAuth                 = wire.Auth
	OpSetWatches           = wire.SetWatches
	OpGetEphemerals        = wire.GetEphemerals
	OpGetAllChildrenNumber = wire.GetAllChildrenNumber
	OpSetWatches2          = wire.SetWatches2
	OpAddWatch             = wire.AddWatch
	OpWhoAmI               = wire.WhoAmI
	OpCloseSession         = wire.CloseSession
	OpConnect              = wire.Connect
)
