package connection

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"
)

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
	Remedy string // a command
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
	case err == zk.ErrNoAuth && g.Strict: //nolint:errorlint // as well
		return fmt.Errorf("read the ACL of %s, which WithStrictACL requires: %w", node, err)
	case err == zk.ErrNoAuth: //nolint:errorlint // as well
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
