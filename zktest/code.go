package zktest

import (
	"errors"
	"strconv"

	"github.com/go-zookeeper/zk"
)

// Code is a result code of the protocol: 0, or one of the negative numbers with which a
// server reports an error. It implements error, and errors.Is matches it with
// go-zookeeper's sentinel: errors.Is(Code(-101), zk.ErrNoNode) is true.
type Code int32

const (
	codeOK             Code = 0
	codeInconsistency  Code = -2
	codeMarshalling    Code = -5
	codeUnimplemented  Code = -6
	codeBadArguments   Code = -8
	codeReconfigOff    Code = -123
	codeNoNode         Code = -101
	codeNoAuth         Code = -102
	codeBadVersion     Code = -103
	codeEphemeralsKids Code = -108
	codeNodeExists     Code = -110
	codeNotEmpty       Code = -111
	codeSessionExpired Code = -112
	codeInvalidACL     Code = -114
	codeAuthFailed     Code = -115
	codeSessionMoved   Code = -118
	codeNoWatcher      Code = -121
)

var codes = map[Code]struct {
	name string
	err  error
}{
	0:    {"ok", nil},
	-1:   {"system error", nil},
	-2:   {"runtime inconsistency", nil},
	-3:   {"data inconsistency", nil},
	-4:   {"connection loss", zk.ErrConnectionClosed},
	-5:   {"marshalling error", nil},
	-6:   {"unimplemented", nil},
	-7:   {"operation timeout", nil},
	-8:   {"bad arguments", zk.ErrBadArguments},
	-12:  {"unknown session", nil},
	-13:  {"new config no quorum", nil},
	-14:  {"reconfig in progress", nil},
	-100: {"API error", zk.ErrAPIError},
	-101: {"no node", zk.ErrNoNode},
	-102: {"no auth", zk.ErrNoAuth},
	-103: {"bad version", zk.ErrBadVersion},
	-108: {"no children for ephemerals", zk.ErrNoChildrenForEphemerals},
	-110: {"node exists", zk.ErrNodeExists},
	-111: {"not empty", zk.ErrNotEmpty},
	-112: {"session expired", zk.ErrSessionExpired},
	-113: {"invalid callback", nil},
	-114: {"invalid ACL", zk.ErrInvalidACL},
	-115: {"auth failed", zk.ErrAuthFailed},
	-116: {"closing", zk.ErrClosing},
	-117: {"nothing", zk.ErrNothing},
	-118: {"session moved", zk.ErrSessionMoved},
	-119: {"not read-only", nil},
	-120: {"ephemeral on local session", nil},
	-121: {"no watcher", nil},
	-122: {"request timeout", nil},
	-123: {"reconfig disabled", zk.ErrReconfigDisabled},
	-124: {"session closed, SASL required", nil},
	-125: {"quota exceeded", nil},
	-127: {"throttled", nil},
}

// String returns a short name, for example "no node".
func (c Code) String() string {
	if e, ok := codes[c]; ok {
		return e.name
	}
	return "code " + strconv.Itoa(int(c))
}

// Error returns the name of the code with the prefix of this package. Code 0 means
// success and must not be returned as an error.
func (c Code) Error() string { return "zktest: " + c.String() + " (" + strconv.Itoa(int(c)) + ")" }

// Is reports whether target is go-zookeeper's sentinel for this code.
func (c Code) Is(target error) bool {
	e, ok := codes[c]
	return ok && e.err != nil && target == e.err
}

// codeOf returns the result code for an error that a test has passed to Fail.
func codeOf(err error) Code {
	var c Code
	if errors.As(err, &c) {
		return c
	}
	for code, e := range codes {
		if e.err != nil && errors.Is(err, e.err) {
			return code
		}
	}
	return -1
}
