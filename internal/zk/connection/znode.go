package connection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// The limits of what users choose and many requests contain. They keep a transaction about 200 znodes
// below the size of a request that servers accept.
const (
	maxPath = 4 << 10
	maxACL  = 64 << 10
)

// CheckPath returns ErrInvalid for the root, for paths that ZooKeeper does not accept, and
// for paths that are too long. Servers handle a character above U+FFFF as two surrogates, which they do
// not accept.
func CheckPath(node string) error {
	switch {
	case !strings.HasPrefix(node, "/"):
		return fmt.Errorf("%w: path %q does not begin with a slash", ErrInvalid, node)
	case node == "/":
		return fmt.Errorf("%w: path: the root cannot be used", ErrInvalid)
	case path.Clean(node) != node:
		return fmt.Errorf("%w: path %q, did you mean %q?", ErrInvalid, node, path.Clean(node))
	case strings.ContainsFunc(node, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
	}):
		return fmt.Errorf("%w: path %q has a character that ZooKeeper does not accept", ErrInvalid, node)
	case len(node) > maxPath:
		return fmt.Errorf("%w: path %q… has %d bytes, which exceed the limit of %d", ErrInvalid, node[:40], len(node), maxPath)
	}
	return nil
}

// CheckACL returns ErrInvalid if acl cannot be that of a znode.
func CheckACL(acl []zk.ACL) error {
	size := 0
	for _, a := range acl {
		size += 12 + len(a.Scheme) + len(a.ID)
	}
	switch {
	case len(acl) == 0:
		return fmt.Errorf("%w: WithACL: the list is empty", ErrInvalid)
	case size > maxACL:
		return fmt.Errorf("%w: WithACL: %d bytes exceed the limit of %d", ErrInvalid, size, maxACL)
	}
	return nil
}

// MakeZnode creates node and those of its parents that do not exist. The parents are containers, which
// the ensemble may remove after their last child was deleted. So is node if container is true. On
// servers that do not implement containers, they are persistent. A znode that exists is not changed.
func MakeZnode(ctx context.Context, conn *zk.Conn, node string, acl []zk.ACL, container bool) error {
	create := makePersistent
	if container {
		create = makeContainer
	}
	for {
		err := create(ctx, conn, node, acl)
		switch {
		case errors.Is(err, zk.ErrNodeExists):
			return nil
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
		if err := MakeZnode(ctx, conn, path.Dir(node), acl, true); err != nil {
			return err
		}
	}
}

// IsEphemeral reports whether the znode with this Stat belongs to a session and has no
// children. The Stat of a container has the owner 0 on Apache's servers and the smallest
// int64 on ClickHouse Keeper.
func IsEphemeral(stat *zk.Stat) bool {
	return stat.EphemeralOwner != 0 && stat.EphemeralOwner != math.MinInt64
}

// maxBroken is the number of consecutive requests for a container that may break the connection
// before makeContainer creates a persistent znode instead. Before each of them the server has
// answered a read, so it is unlikely that the network fails each time in this moment. If it does,
// the directories that this connection creates remain after their last child was deleted, which
// costs their znodes and nothing else.
const maxBroken = 3

// withoutContainers reports whether the servers of a connection do not implement containers.
var withoutContainers = NewMap(func(*zk.Conn) *atomic.Bool { return new(atomic.Bool) })

// makeContainer creates node as a container. ZooKeeper before release 3.5 returns
// "unimplemented"; ClickHouse Keeper before release 26.7 closes the connection without a reply.
// On such servers makeContainer creates a persistent znode. So the request is not retried by
// this package: after several failures, another request is sent.
func makeContainer(ctx context.Context, conn *zk.Conn, node string, acl []zk.ACL) error {
	var backoff Backoff
	unsupported := withoutContainers.Of(conn)
	for broken := 0; broken < maxBroken && !unsupported.Load(); {
		_, err := Do(ctx, func() (string, error) {
			return conn.CreateContainer(node, nil, zk.FlagContainer, acl)
		})
		switch {
		case err == nil:
			return nil
		case HasCode(err, Unimplemented):
			broken = maxBroken
			continue
		case errors.Is(err, zk.ErrConnectionClosed):
			broken++
		}
		if final := Final(ctx, conn, err); final != nil {
			return final
		}
		if err := limit.Pause(ctx, backoff.Next()); err != nil {
			return err
		}
		// The reply shows that the connection works again, and whether the request that broke
		// it was applied.
		exists, err := Read(ctx, conn, func() (bool, error) {
			exists, _, err := conn.Exists(node)
			return exists, err
		})
		if err != nil || exists {
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

// changing are the permissions with which a client changes an election or a recipe. In ZooKeeper the
// ACL of a znode determines who may create and delete its children.
const changing = zk.PermCreate | zk.PermDelete | zk.PermWrite | zk.PermAdmin

// Others returns the permissions in the ACL of a znode with which clients may change the znode, or
// create and delete its children, and which own does not grant to them. own is the ACL with which a
// participant creates its znodes. Its scheme "auth" stands for all identities with credentials, because
// only the servers know which of them the connection has.
func Others(node, own []zk.ACL) []zk.ACL {
	var others []zk.ACL
	for _, a := range node {
		granted := int32(0)
		for _, o := range own {
			if includes(o, a) {
				granted |= o.Perms
			}
		}
		if a.Perms &= changing &^ granted; a.Perms != 0 {
			others = append(others, a)
		}
	}
	return others
}

// includes reports whether an entry of the participant's ACL applies to all clients to which the entry a
// of a znode applies.
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
	// The servers conceal the hash from clients that must not change the ACL.
	user, _, _ := strings.Cut(own.ID, ":")
	return own.ID == a.ID || own.Scheme == "digest" && a.ID == user+":x"
}

// Protects reports whether an ACL denies a change to some clients.
func Protects(acl []zk.ACL) bool { return len(Others(zk.WorldACL(zk.PermAll), acl)) > 0 }

// Guard checks that the ACLs of znodes that exist do not permit more than the ACL with which a
// participant creates its znodes.
type Guard struct {
	Conn   *zk.Conn
	ACL    []zk.ACL
	Strict bool // an error instead of a warning
	Log    *slog.Logger
}

// CheckStrict returns ErrInvalid if there is nothing that a strict Guard can check.
func CheckStrict(acl []zk.ACL, strict bool) error {
	if strict && !Protects(acl) {
		return fmt.Errorf("%w: WithStrictACL: it needs WithACL with an ACL that does not grant all permissions to all clients", ErrInvalid)
	}
	return nil
}

// OpenError means that the ACL of a znode permits other clients to change it. It wraps
// ErrPermission.
type OpenError struct {
	Path   string
	Others []zk.ACL
	Remedy string // a command for zkCli.sh that changes the ACL
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("%v: the ACL of %s lets other clients change it (%s): set it with zkCli.sh, as a client that may administer it: %s",
		ErrPermission, e.Path, format(e.Others), e.Remedy)
}

func (e *OpenError) Unwrap() error { return ErrPermission }

// checks are the znodes that were checked on a connection.
type checks struct {
	mu     sync.Mutex
	czxids map[string]int64 // of the znodes that were checked, by path and Guard
}

// maxChecks limits the number of znodes that are remembered.
const maxChecks = 1024

var checksOf = NewMap(func(*zk.Conn) *checks { return &checks{czxids: map[string]int64{}} })

// Check reads the ACL of a znode, unless that was done before on the connection. czxid identifies the
// znode; if it is 0, a znode that was deleted and created again does not matter. If others may change the
// znode, or if the connection is not permitted to read the ACL, Check logs a warning, or returns an error
// if the Guard is strict, in the first case an OpenError. A missing znode is no error. Check sends at most
// one request, and none if the ACL of the Guard permits everything.
func (g *Guard) Check(node string, czxid int64) error {
	if g.Checked(node, czxid) {
		return nil
	}
	acl, stat, err := g.Conn.GetACL(node)
	switch {
	case err == zk.ErrNoNode: //nolint:errorlint // as the client library returns it
		return nil
	case err == zk.ErrNoAuth && g.Strict: //nolint:errorlint // as the client library returns it
		return fmt.Errorf("read the ACL of %s, which WithStrictACL requires: %w", node, err)
	case err == zk.ErrNoAuth: //nolint:errorlint // as the client library returns it
		if g.note(node, czxid) {
			g.Log.Warn("the ACL of the znode cannot be read, so other clients may be able to change it: permit the participants to read it", "path", node)
		}
		return nil
	case err != nil:
		return err
	}
	open := OpenError{node, Others(acl, g.ACL), remedy(node, g.ACL)}
	if g.Strict && len(open.Others) > 0 {
		return &open
	}
	if g.note(node, stat.Czxid) && len(open.Others) > 0 {
		g.Log.Warn("the ACL of the znode lets other clients change it: set it with zkCli.sh", "path", node,
			"others", format(open.Others), "command", open.Remedy)
	}
	return nil
}

func (g *Guard) key(node string) string { return fmt.Sprint(node, " ", g.ACL, g.Strict) }

// Checked reports whether Check would send no request.
func (g *Guard) Checked(node string, czxid int64) bool {
	if !Protects(g.ACL) {
		return true
	}
	c, key := checksOf.Of(g.Conn), g.key(node)
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.czxids[key]
	return ok && (czxid == 0 || czxid == known)
}

// note records that the znode was checked. It returns false if that was known.
func (g *Guard) note(node string, czxid int64) bool {
	c, key := checksOf.Of(g.Conn), g.key(node)
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.czxids[key]; ok && known == czxid {
		return false
	}
	if len(c.czxids) >= maxChecks {
		clear(c.czxids)
	}
	c.czxids[key] = czxid
	return true
}

// remedy returns the commands of zkCli.sh that set the ACL of a znode.
func remedy(node string, acl []zk.ACL) string {
	if strings.ContainsAny(node, ` '"`) {
		node = `"` + node + `"`
	}
	command := "setAcl " + node + " " + format(acl)
	if slices.ContainsFunc(acl, func(a zk.ACL) bool { return a.Scheme == "auth" }) {
		// zkCli.sh replaces auth by the identities of its own session.
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
