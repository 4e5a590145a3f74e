package connection

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// Limits of the paths and ACLs that users choose. With these limits, a transaction that deletes 200 znodes, or
// creates a few znodes with their ACLs, is smaller than a megabyte, which is the default limit of servers.
const (
	maxPath = 4 << 10
	maxACL  = 64 << 10
)

// CheckPath returns ErrInvalid for the root, for paths that ZooKeeper does not accept, and for paths that are too
// long. It also rejects characters above U+FFFF, which servers handle as two surrogates, and do not accept.
func CheckPath(node string) error {
	switch {
	case !strings.HasPrefix(node, "/"):
		return fmt.Errorf("%w: path %q does not begin with a slash", ErrInvalid, node)
	case node == "/":
		return fmt.Errorf("%w: path \"/\": the root cannot be the path of an election or a recipe", ErrInvalid)
	case path.Clean(node) != node:
		return fmt.Errorf("%w: path %q is not in canonical form, did you mean %q?", ErrInvalid, node, path.Clean(node))
	case strings.ContainsFunc(node, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
	}):
		return fmt.Errorf("%w: path %q has a character that ZooKeeper does not accept", ErrInvalid, node)
	case len(node) > maxPath:
		return fmt.Errorf("%w: path %q… has %d bytes, which exceed the limit of %d", ErrInvalid, node[:40], len(node), maxPath)
	}
	return nil
}

// MakeZnode creates node and its missing parents. It creates the parents, and node if container is true, as
// containers, which the ensemble may remove after the deletion of the last child. Servers that do not implement
// containers get persistent znodes. MakeZnode does not change a znode that exists.
func MakeZnode(ctx context.Context, conn *zk.Conn, node string, acl []zk.ACL, container bool) error {
	create := makePersistent
	if container {
		create = makeContainer
	}
	for {
		err := create(ctx, conn, node, acl)
		switch {
		case errors.Is(err, zk.ErrNodeExists) && !IsCause(ctx, err):
			return nil
		case !IsNoNode(ctx, err):
			return err
		}
		if err := MakeZnode(ctx, conn, path.Dir(node), acl, true); err != nil {
			return err
		}
	}
}

// RandomUUID returns a random UUID, for the name of a znode.
func RandomUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // rand.Read never returns an error
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// IsEphemeral reports whether the znode with this Stat belongs to a session. In the Stat of a container, the owner
// is 0 on Apache's servers and the smallest int64 on ClickHouse Keeper.
func IsEphemeral(stat *zk.Stat) bool {
	return stat.EphemeralOwner != 0 && stat.EphemeralOwner != math.MinInt64
}

// maxBroken is the number of consecutive requests for a container that may break the connection before
// makeContainer creates a persistent znode instead. The server has answered a read before each of these requests.
// If it was the network that failed three times, the only harm is an empty directory that remains.
const maxBroken = 3

// withoutContainers contains whether the servers of a connection do not implement containers.
var withoutContainers = NewMap(func(*zk.Conn) *atomic.Bool { return new(atomic.Bool) })

// makeContainer creates node as a container, or as a persistent znode on servers that do not implement
// containers: ZooKeeper before 3.5 returns "unimplemented"; ClickHouse Keeper before 26.7 closes the
// connection without a reply.
func makeContainer(ctx context.Context, conn *zk.Conn, node string, acl []zk.ACL) error {
	var backoff Backoff
	unsupported := withoutContainers.Of(conn)
	for broken := 0; broken < maxBroken && !unsupported.Load(); {
		_, err := Do(ctx, func() (string, error) {
			return conn.CreateContainer(node, nil, zk.FlagContainer, acl)
		})
		switch code := CodeOf(err); {
		case err == nil:
			return nil
		case code != nil && code.Name == "UNIMPLEMENTED":
			broken = maxBroken
			continue
		case errors.Is(err, zk.ErrConnectionClosed):
			broken++
		}
		if err := backoff.AwaitRetry(ctx, conn, err); err != nil {
			return err
		}
		// The reply shows that the connection works again, and whether the server has applied the request.
		stat, err := ReadStat(ctx, conn, node)
		if err != nil || stat.Czxid != 0 {
			return err
		}
	}
	unsupported.Store(true)
	return makePersistent(ctx, conn, node, acl)
}

func makePersistent(ctx context.Context, conn *zk.Conn, node string, acl []zk.ACL) error {
	return Retry(ctx, conn, func() error {
		_, err := conn.Create(node, nil, zk.FlagPersistent, acl)
		return err
	})
}

// changePermissions contains the permissions with which a client can change an election or a recipe. The ACL of a znode
// determines who may create and delete its children.
const changePermissions = zk.PermCreate | zk.PermDelete | zk.PermWrite | zk.PermAdmin

// Others returns the permissions in the ACL of a znode with which clients may change the znode or its children, and
// which own, the ACL of a participant's znodes, does not grant to these clients. The scheme "auth" in own means
// all identities with credentials, because only the servers know the identities of the connection.
func Others(node, own []zk.ACL) []zk.ACL {
	var others []zk.ACL
	for _, a := range node {
		granted := int32(0)
		for _, o := range own {
			if includes(o, a) {
				granted |= o.Perms
			}
		}
		if a.Perms &= changePermissions &^ granted; a.Perms != 0 {
			others = append(others, a)
		}
	}
	return others
}

// includes reports whether an entry of own applies to all clients to which the entry a applies.
func includes(own, a zk.ACL) bool {
	switch own.Scheme {
	case "world":
		return true
	case "auth":
		return a.Scheme != "world" && a.Scheme != "ip"
	}
	if own.Scheme != a.Scheme {
		return false
	}
	// The servers conceal the hash from clients that must not change the ACL, so compare only the users.
	user, _, _ := strings.Cut(own.ID, ":")
	return own.ID == a.ID || own.Scheme == "digest" && a.ID == user+":x"
}

// Protects reports whether an ACL denies a change to some clients.
func Protects(acl []zk.ACL) bool { return len(Others(zk.WorldACL(zk.PermAll), acl)) > 0 }

// Options are the connection of an election or a recipe, and the options that all elections and recipes have.
type Options struct {
	Conn *zk.Conn
	ACL  []zk.ACL // the ACL of the znodes that a participant creates
	// StrictACL makes CheckZnode return an error, instead of logging a warning, if the ACL of an existing znode
	// permits other clients more than ACL does.
	StrictACL bool
	Timeout   time.Duration // the session timeout that the user has configured, 0 for the granted timeout
	// CheckInterval is the time from the acknowledgement of a check to the next check, at most a quarter of the
	// session timeout; 0 means an eighth of it. Each check renews the lease of all subscriptions.
	CheckInterval time.Duration
	Log           *slog.Logger

	err error // the error of the first invalid option
}

// Invalid records that an option is invalid, so that Check returns an ErrInvalid. The first invalid option
// determines the error.
func (o *Options) Invalid(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
}

// SetTimeout sets Timeout for the option WithSessionTimeout.
func (o *Options) SetTimeout(d time.Duration) {
	if o.Timeout = d; d < 100*time.Millisecond {
		o.Invalid("WithSessionTimeout(%v): must be at least 100ms", d)
	}
}

// SetCheckInterval sets CheckInterval for the option WithCheckInterval.
func (o *Options) SetCheckInterval(d time.Duration) {
	if o.CheckInterval = d; d <= 0 {
		o.Invalid("WithCheckInterval(%v): must be positive", d)
	}
}

// Check returns an ErrInvalid if an option is invalid. A Timeout is invalid if it exceeds the granted timeout, as
// far as that is known. Check also starts to detect pauses of the process. Conn may be nil.
func (o *Options) Check() error {
	size := 0
	for _, a := range o.ACL {
		size += 12 + len(a.Scheme) + len(a.ID)
	}
	switch {
	case o.Log == nil:
		o.Invalid("WithLogger: the logger is nil")
	case len(o.ACL) == 0:
		o.Invalid("WithACL: the list is empty")
	case size > maxACL:
		o.Invalid("WithACL: %d bytes exceed the limit of %d", size, maxACL)
	case o.StrictACL && !Protects(o.ACL):
		o.Invalid("WithStrictACL requires WithACL with an ACL that does not grant all permissions to all clients")
	case o.Conn == nil:
	default:
		DetectPauses(o.Conn)
		if granted := Granted(o.Conn); granted > 0 && o.Timeout > granted {
			o.Invalid("WithSessionTimeout(%v): the servers have granted %v; omit the option or use at most that value", o.Timeout, granted)
		}
	}
	return o.err
}

// OpenError means that the ACL of a znode permits other clients to change it. It wraps ErrPermission.
type OpenError struct {
	Path   string
	Others []zk.ACL
	Remedy string // a command for zkCli.sh that corrects the ACL
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("%v: the ACL of %s lets other clients change it (%s): set it with zkCli.sh, as a client that may administer it: %s",
		ErrPermission, e.Path, format(e.Others), e.Remedy)
}

func (e *OpenError) Unwrap() error { return ErrPermission }

// checkedZnodes contains the czxids of the znodes whose ACL was checked, by path and Options.
var checkedZnodes = NewTables[string, int64]()

// CheckZnode reads the ACL of a znode, unless it has done so before on the connection. czxid identifies the znode;
// 0 means any znode at the path. If other clients may change the znode, or if the connection must not read the ACL,
// CheckZnode logs a warning. With StrictACL it returns an error instead, an OpenError in the first case. A missing
// znode is no error. CheckZnode sends at most one request, and none if ACL permits everything.
func (o *Options) CheckZnode(node string, czxid int64) error {
	if o.CheckedZnode(node, czxid) {
		return nil
	}
	acl, stat, err := o.Conn.GetACL(node)
	switch {
	case err == zk.ErrNoNode: //nolint:errorlint // the client library returns this error unwrapped
		return nil
	case err == zk.ErrNoAuth && o.StrictACL: //nolint:errorlint // the client library returns this error unwrapped
		return fmt.Errorf("read the ACL of %s, which WithStrictACL requires: %w", node, err)
	case err == zk.ErrNoAuth: //nolint:errorlint // the client library returns this error unwrapped
		if o.recordCheck(node, czxid) {
			o.Log.Warn("the ACL of the znode cannot be read, so other clients may be able to change it: permit the participants to read it", "path", node)
		}
		return nil
	case err != nil:
		return err
	}
	open := OpenError{node, Others(acl, o.ACL), remedy(node, o.ACL)}
	if o.StrictACL && len(open.Others) > 0 {
		return &open
	}
	if o.recordCheck(node, stat.Czxid) && len(open.Others) > 0 {
		o.Log.Warn("the ACL of the znode lets other clients change it: set it with zkCli.sh", "path", node,
			"others", format(open.Others), "command", open.Remedy)
	}
	return nil
}

func (o *Options) key(node string) string { return fmt.Sprint(node, " ", o.ACL, o.StrictACL) }

// CheckedZnode reports whether CheckZnode would send no request, because it has checked the znode before or because
// ACL permits everything.
func (o *Options) CheckedZnode(node string, czxid int64) bool {
	if !Protects(o.ACL) {
		return true
	}
	key, checked := o.key(node), checkedZnodes.Lock(o.Conn)
	defer checked.Unlock()
	known, ok := checked.Entries[key]
	return ok && (czxid == 0 || czxid == known)
}

// recordCheck records that CheckZnode has checked the znode, and returns false if it had checked the znode before.
func (o *Options) recordCheck(node string, czxid int64) bool {
	key, checked := o.key(node), checkedZnodes.Lock(o.Conn)
	defer checked.Unlock()
	if known, ok := checked.Entries[key]; ok && known == czxid {
		return false
	}
	checked.Remember(key, czxid)
	return true
}

// remedy returns the commands for zkCli.sh that set the ACL of a znode.
func remedy(node string, acl []zk.ACL) string {
	if strings.ContainsAny(node, ` '"`) {
		node = `"` + node + `"`
	}
	command := "setAcl " + node + " " + format(acl)
	if slices.ContainsFunc(acl, func(a zk.ACL) bool { return a.Scheme == "auth" }) {
		// zkCli.sh replaces auth by the identities of its own session, so these must be the identities of the
		// participants.
		command = "addauth digest USER:PASSWORD (those of the participants), and then " + command
	}
	return command
}

// format returns an ACL as zkCli.sh reads it.
func format(acl []zk.ACL) string {
	var entries []string
	for _, a := range acl {
		perms := ""
		for i, letter := range "rwcda" {
			if a.Perms&(1<<i) != 0 {
				perms += string(letter)
			}
		}
		entries = append(entries, a.Scheme+":"+a.ID+":"+perms)
	}
	return strings.Join(entries, ",")
}
