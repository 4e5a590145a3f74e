package connection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
)

// The errors that elections and recipes have in common. The packages that users import, such as package recipes,
// export and document these errors.
var (
	ErrInvalid        = errors.New("invalid argument")
	ErrConnClosed     = errors.New("connection is closed")
	ErrUnreachable    = errors.New("the server does not answer")
	ErrPermission     = errors.New("not permitted")
	ErrUnconfirmed    = errors.New("not confirmed by the servers")
	ErrDataLost       = errors.New("the ZooKeeper servers have lost their data")
	ErrElectionOver   = errors.New("election is over")
	ErrNodeExhausted  = errors.New("sequence numbers of the node are exhausted")
	ErrAmbiguous      = errors.New("two candidates have the same sequence number")
	ErrDeleted        = errors.New("znode was deleted by another client")
	ErrSessionExpired = errors.New("session expired")
	ErrLeaseExpired   = errors.New("lease expired: it was not confirmed in time")

	// ErrTooLarge means that a reply exceeds the receive buffer of the connection (zk.WithMaxBufferSize). The
	// client library closes the connection when it receives such a reply, and would do so again if the request were
	// repeated. Recipes also return ErrTooLarge for a request that is larger than servers accept.
	ErrTooLarge = errors.New("request or reply is too large")
)

// ErrNilConn is the error of a function whose argument conn is nil.
var ErrNilConn = fmt.Errorf("%w: the connection is nil", ErrInvalid)

// Class says what a client does after an error code of the servers.
type Class string

const (
	// ClassAnswer describes the state of a znode. The caller of the request decides what to do.
	ClassAnswer Class = "answer"
	// ClassTransient means that the server was busy or about to lose its connections. The client repeats the
	// request without knowing whether the server has applied the first one.
	ClassTransient Class = "transient"
	// ClassPassing ends the operation, because only a person can remove the cause, such as an exceeded quota. But a
	// participant that was in an election or a queue before, and joins it again, repeats the operation until it
	// succeeds.
	ClassPassing Class = "passing"
	// ClassFinal ends the operation, because the same request would fail again.
	ClassFinal Class = "final"
)

// Code is an error code of the servers.
type Code struct {
	Number  int32
	Name    string // the name in the source code of ZooKeeper
	Class   Class
	Meaning string
	Remedy  string // what the user can do against the error

	sentinel error // the exported error that users compare with, or nil
	library  error // the error of the client library, or nil: its text is then "unknown error: NUMBER"
}

const (
	seeLog    = "read the server's log"
	byLibrary = "none: the library reacts to it"
	again     = "none: the library sends the request again"
)

// Codes are the error codes with which servers answer the requests of this library. docs/servers.md contains the
// same table.
var Codes = []Code{
	{-1, "SYSTEMERROR", ClassFinal, "the server has failed to process the request", seeLog, nil, nil},
	{-2, "RUNTIMEINCONSISTENCY", ClassFinal, "the server has found an inconsistency", seeLog, nil, nil},
	{-3, "DATAINCONSISTENCY", ClassFinal, "the server has found inconsistent data", seeLog, nil, nil},
	{-4, "CONNECTIONLOSS", ClassTransient, "the server has lost its connection", again, nil, nil},
	{-5, "MARSHALLINGERROR", ClassFinal, "the server cannot decode the request", "use servers that implement the ZooKeeper protocol completely", nil, nil},
	{-6, "UNIMPLEMENTED", ClassFinal, "the server does not implement the operation", "use ZooKeeper 3.5 or later", nil, nil},
	{-7, "OPERATIONTIMEOUT", ClassTransient, "the server has not executed the request in time", again, nil, nil},
	{-8, "BADARGUMENTS", ClassFinal, "the server does not accept an argument of the request", "check the path and the options", nil, zk.ErrBadArguments},
	{-9, "INVALIDSTATE", ClassFinal, "the connection is in a wrong state", "open a new connection", nil, nil},
	{-12, "UNKNOWNSESSION", ClassFinal, "the server does not know the session", "open a new connection", nil, nil},
	{-100, "APIERROR", ClassFinal, "the server rejects the request", seeLog, nil, zk.ErrAPIError},
	{-101, "NONODE", ClassAnswer, "the znode does not exist", byLibrary, nil, zk.ErrNoNode},
	{-102, "NOAUTH", ClassFinal, "the ACL of the znode, or of its parent, does not permit the request", "call AddAuth on the connection, or change the ACL", ErrPermission, zk.ErrNoAuth},
	{-103, "BADVERSION", ClassAnswer, "the znode has changed", byLibrary, nil, zk.ErrBadVersion},
	{-108, "NOCHILDRENFOREPHEMERALS", ClassFinal, "the parent is ephemeral and cannot have children", "use a path whose parents are not ephemeral", nil, zk.ErrNoChildrenForEphemerals},
	{-110, "NODEEXISTS", ClassAnswer, "the znode exists", byLibrary, nil, zk.ErrNodeExists},
	{-111, "NOTEMPTY", ClassAnswer, "the znode has children", byLibrary, nil, zk.ErrNotEmpty},
	{-112, "SESSIONEXPIRED", ClassTransient, "the session has expired", "none: the library continues in the next session, or reports that the session is lost", nil, zk.ErrSessionExpired},
	{-114, "INVALIDACL", ClassFinal, "the ACL is invalid, or has no entry that applies to the connection", "change the ACL; with scheme auth, call AddAuth on the connection first", ErrPermission, zk.ErrInvalidACL},
	{-115, "AUTHFAILED", ClassPassing, "the server rejects the credentials of the connection", "correct the credentials, or the authentication providers of the server", ErrPermission, zk.ErrAuthFailed},
	{-116, "CLOSING", ClassTransient, "the connection is being closed", "none: the operation ends with ErrConnClosed", nil, zk.ErrClosing},
	{-117, "NOTHING", ClassFinal, "the server has not sent a response", seeLog, nil, zk.ErrNothing},
	{-118, "SESSIONMOVED", ClassTransient, "the session is connected to another server", again, nil, zk.ErrSessionMoved},
	{-119, "NOTREADONLY", ClassTransient, "the server is read-only, because it is not connected to a quorum", again, nil, nil},
	{-120, "EPHEMERALONLOCALSESSION", ClassFinal, "a local session cannot create ephemeral znodes", "set localSessionsUpgradingEnabled=true on the servers", nil, nil},
	{-122, "REQUESTTIMEOUT", ClassTransient, "the quorum has not confirmed the request in time", again, nil, nil},
	{-124, "SESSIONCLOSEDREQUIRESASLAUTH", ClassPassing, "the server serves only authenticated connections", "call AddAuth on the connection with a scheme that enforce.auth.schemes contains; the client library does not implement SASL, which sessionRequireClientSASLAuth requires", ErrPermission, nil},
	{-125, "QUOTAEXCEEDED", ClassPassing, "the quota of a parent of the znode is exceeded", "raise the quota (setquota), or delete znodes below that parent", ErrPermission, nil},
	{-127, "THROTTLEDOP", ClassTransient, "the server is overloaded and has rejected the request", again, nil, nil},
}

// unknownPrefix is the beginning of the errors that the client library returns for codes that it does not define.
const unknownPrefix = "unknown error: "

// CodeOf returns the first error code that err wraps, or nil if err is not an answer of a server. A number that
// Codes does not contain is a final code without a name.
func CodeOf(err error) *Code {
	switch err := err.(type) { //nolint:errorlint // the switch visits the tree of wrapped errors
	case nil:
		return nil
	case *Rejection:
		return err.Code
	case interface{ Unwrap() error }:
		return CodeOf(err.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range err.Unwrap() {
			if c := CodeOf(err); c != nil {
				return c
			}
		}
		return nil
	}
	number, unknown := int64(0), false
	if digits, found := strings.CutPrefix(err.Error(), unknownPrefix); found {
		n, failed := strconv.ParseInt(digits, 10, 32)
		number, unknown = n, failed == nil
	}
	for i := range Codes {
		if c := &Codes[i]; c.library != nil && err == c.library || unknown && c.Number == int32(number) { //nolint:errorlint // compare only this node
			return c
		}
	}
	if !unknown {
		return nil
	}
	return &Code{Number: int32(number), Class: ClassFinal, Meaning: "the server rejects the request", Remedy: seeLog}
}

// IgnoreNoNode returns nil for zk.ErrNoNode, and other errors unchanged. err must be the result of one request and
// not the cause of a context, which can wrap zk.ErrNoNode as well.
func IgnoreNoNode(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// IsCause reports whether err wraps the cause of ctx. That cause can be any error, also an answer of a server: for
// example, errgroup.WithContext cancels its context with the first error of a goroutine. So a caller must call
// IsCause before it takes the error of a request that ends with ctx for the answer to this request.
func IsCause(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
}

// IsNoNode reports whether err is the answer of a server that the znode does not exist, and not the cause of ctx,
// with which the request ends.
func IsNoNode(ctx context.Context, err error) bool {
	return errors.Is(err, zk.ErrNoNode) && !IsCause(ctx, err)
}

// IsPassing reports whether err wraps an answer of ClassPassing.
func IsPassing(err error) bool {
	c := CodeOf(err)
	return c != nil && c.Class == ClassPassing
}

// IsRejection reports whether err wraps an answer of a server that ends an operation: ClassPassing or ClassFinal.
func IsRejection(err error) bool {
	c := CodeOf(err)
	return c != nil && (c.Class == ClassPassing || c.Class == ClassFinal)
}

// Rejection is the error of a request that a server has rejected.
type Rejection struct {
	Code   *Code
	Server string // the address of the server, or "" if it is not known
	Err    error  // the error of the client library
}

// Error returns the meaning of the code, the code, the server, and what the user can do.
func (r *Rejection) Error() string {
	text, number := r.Err.Error(), strconv.Itoa(int(r.Code.Number))
	if wrapping, undefined := strings.CutSuffix(text, unknownPrefix+number); undefined {
		text = wrapping + r.Code.Meaning
	}
	if r.Code.sentinel != nil {
		text = r.Code.sentinel.Error() + ": " + text
	}
	origin := strings.TrimSpace(r.Code.Name + " " + number)
	if r.Server != "" {
		origin += " from " + r.Server
	}
	return fmt.Sprintf("%s (%s): %s", text, origin, r.Code.Remedy)
}

// Unwrap returns the error for users, if there is one, and the error of the client library.
func (r *Rejection) Unwrap() []error {
	if r.Code.sentinel == nil {
		return []error{r.Err}
	}
	return []error{r.Code.sentinel, r.Err}
}

// Reject returns a Rejection for an error with which a server ends an operation, and other errors unchanged. The
// Rejection names the server that conn uses. conn may be nil.
func Reject(ctx context.Context, conn *zk.Conn, err error) error {
	var rejected *Rejection
	if !IsRejection(err) || errors.As(err, &rejected) {
		return err
	}
	return &Rejection{CodeOf(err), server(ctx, conn), err}
}

// Refine is like Reject, and also returns ErrInvalid for the client library's error about an invalid path.
func Refine(conn *zk.Conn, err error) error {
	if errors.Is(err, zk.ErrInvalidPath) && !errors.Is(err, ErrInvalid) {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return Reject(context.Background(), conn, err)
}

// server returns the address of the server that conn uses, or "" if that cannot be found out within a short time.
// While the connection is down, the client library holds the lock that conn.Server needs until the library has the
// next address, which may require a DNS lookup that blocks.
func server(ctx context.Context, conn *zk.Conn) string {
	if conn == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, ClosingTime)
	defer cancel()
	address, _ := Do(ctx, func() (string, error) { return conn.Server(), nil })
	return address
}

// Transient reports whether err means that the connection has failed or that the server was busy, so that the
// request may be repeated. It is unknown whether the failed request was applied.
func Transient(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrNoServer):
		return true
	}
	if code := CodeOf(err); code != nil {
		return code.Class == ClassTransient
	}
	// If a write fails, the client library returns the error of the socket, or of a pipe or a tunnel of the user's
	// dialer.
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, io.EOF)
}

// Explain adds a reason to err, the error of an operation on conn: why conn has no session, or which server has not
// answered. To ErrConnClosed it adds ErrHangs if the client library hangs. Explain returns an error that does not
// depend on the connection unchanged. conn may be nil.
func Explain(conn *zk.Conn, err error) error {
	switch {
	case err == nil || conn == nil:
		return err
	case errors.Is(err, ErrConnClosed):
		reason := RecordOf(conn).Facts().Failure
		if errors.Is(reason, ErrHangs) && !errors.Is(err, ErrHangs) {
			return fmt.Errorf("%w: %w", err, reason)
		}
		return err
	case CodeOf(err) != nil || errors.Is(err, ErrInvalid):
		return err
	}
	if conn.State() != zk.StateHasSession {
		if failure := RecordOf(conn).Facts().Failure; failure != nil {
			return fmt.Errorf("%w (%v)", err, failure) // do not wrap failure, because it is not the error of a request
		}
		if !errors.Is(err, zk.ErrNoServer) { // the text of ErrNoServer says that the client has reached no server
			err = fmt.Errorf("%w (the connection has no session)", err)
		}
		return err
	}
	if errors.Is(err, ErrUnreachable) {
		if address := server(context.Background(), conn); address != "" {
			return fmt.Errorf("%w (%s)", err, address)
		}
	}
	return err
}
