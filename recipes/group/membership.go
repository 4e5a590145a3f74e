package group

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Group is a set of members, each of which belongs to the group while its session exists.
// It may be used by any number of goroutines. Any number of Groups can refer to the group
// at one path.
type Group struct {
	setup     *recipe.Setup
	namesOnly bool // reports that only the IDs of members are read, and not their data
}

// Member describes a member of a group. Two Members with the same Token and Revision are
// the same member with the same data.
type Member struct {
	// ID is the ID of the member.
	ID string
	// Data is the member's data. Views share it: it must not be modified.
	Data []byte
	// Token is the creation zxid of the member's znode. A member that has left and rejoined
	// has a greater Token.
	Token int64
	// Revision is the zxid of the last change of the member's data. It is initially equal
	// to Token.
	Revision int64
	// Session is the ID of the member's session.
	Session int64
	// Err is the reason why the data cannot be read: [recipes.ErrPermission], or
	// [recipes.ErrTooLarge] if it is larger than the connection accepts. Then Data is nil, and
	// in kazoo's layout ID is the name of the member's znode.
	Err error
}

// New returns the group at path. It sends no request: the first member creates the
// znode. Errors: [recipes.ErrInvalid].
func New(conn *zk.Conn, path string, opts ...Option) (*Group, error) {
	var own settings
	s, err := recipe.NewOwn(conn, path, &own, opts, Option.ApplyGroup)
	switch {
	case err != nil:
		return nil, err
	case own.namesOnly && s.Layout == recipe.Kazoo:
		return nil, fmt.Errorf("%w: group.WithoutData: in the layout of kazoo the data of a member is its ID", recipes.ErrInvalid)
	}
	return &Group{s, own.namesOnly}, nil
}

// Membership represents a member that has joined a group in this process. Its znode is
// maintained as by a [Persistent]. It must be closed, which leaves the group.
type Membership struct {
	*Persistent
	id string
}

// Join joins the group as member id with the given data, and blocks until other clients can
// see the member. If another member has the same ID, Join waits until it has left, which
// takes up to a session timeout if it has crashed. If the context is done first, Join
// returns its cause and does not join. Other errors: [recipes.ErrInvalid] if id is
// not a valid name of a znode, [recipes.ErrConnClosed], [recipes.ErrPermission].
//
// With [recipes.WithKazooLayout] the data of the znode is the ID, which can be any text and does not
// have to be unique; data must be nil.
func (g *Group) Join(ctx context.Context, id string, data []byte) (*Membership, error) {
	m, err := g.startMember(id, data)
	if err != nil {
		return nil, g.setup.Fail("join", g.setup.Path, err)
	}
	if err := m.Await(ctx); err != nil {
		_ = m.keeper.Close(ctx, recipes.ErrClosed)
		return nil, g.setup.Fail("join", g.setup.Path, err)
	}
	return m, nil
}

// startMember starts to maintain the znode of a member, and does not wait until the znode exists.
func (g *Group) startMember(id string, data []byte) (*Membership, error) {
	node := g.setup.Path + "/" + id
	switch {
	case g.setup.Layout == recipe.Kazoo && data != nil:
		return nil, fmt.Errorf("%w: kazoo's layout does not support data of members", recipes.ErrInvalid)
	case g.setup.Layout == recipe.Kazoo:
		var guid [16]byte
		rand.Read(guid[:]) // Read never fails
		node, data = path.Join(g.setup.Path, hex.EncodeToString(guid[:])+kazooSuffix), []byte(id)
	case id == "", strings.Contains(id, "/"), connection.CheckPath(node) != nil:
		return nil, fmt.Errorf("%w: ID %q is not a valid znode name", recipes.ErrInvalid, id)
	}
	p, err := newPersistent(g.setup, node, data)
	if err != nil {
		return nil, err
	}
	return &Membership{p, id}, nil
}

// kazooSuffix is the suffix of the names of the znodes of kazoo's Party.
const kazooSuffix = "__party__"

// ID returns the ID of the member.
func (m *Membership) ID() string { return m.id }

// Set changes the member's data; see [Persistent.Set]. With [recipes.WithKazooLayout] it returns
// [recipes.ErrInvalid].
func (m *Membership) Set(ctx context.Context, data []byte) error {
	if m.setup.Layout == recipe.Kazoo {
		return fmt.Errorf("%w: kazoo's layout does not support data of members", recipes.ErrInvalid)
	}
	return m.Persistent.Set(ctx, data)
}
