package connection

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// The limits of what users choose and many requests contain. They keep a transaction about 200 znodes
// below the size of a request that servers accept.
const (
	maxPath = 4 << 10
	maxACL  = 64 << 10
)

// CheckPath returns zkerror.ErrInvalid for the root, for paths that ZooKeeper does not accept, and
// for paths that are too long. Servers handle a character above U+FFFF as two surrogates, which they do
// not accept.
func CheckPath(node string) error {
	switch {
	case !strings.HasPrefix(node, "/"):
		return fmt.Errorf("%w: path %q does not begin with a slash", zkerror.ErrInvalid, node)
	case node == "/":
		return fmt.Errorf("%w: path: the root cannot be used", zkerror.ErrInvalid)
	case path.Clean(node) != node:
		return fmt.Errorf("%w: path %q, did you mean %q?", zkerror.ErrInvalid, node, path.Clean(node))
	case strings.ContainsFunc(node, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
	}):
		return fmt.Errorf("%w: path %q has a character that ZooKeeper does not accept", zkerror.ErrInvalid, node)
	case len(node) > maxPath:
		return fmt.Errorf("%w: path %q and so on has %d bytes, at most %d", zkerror.ErrInvalid, node[:40], len(node), maxPath)
	}
	return nil
}

// CheckACL returns zkerror.ErrInvalid if acl cannot be that of a znode.
func CheckACL(acl []zk.ACL) error {
	size := 0
	for _, a := range acl {
		size += 12 + len(a.Scheme) + len(a.ID)
	}
	switch {
	case len(acl) == 0:
		return fmt.Errorf("%w: WithACL: the list is empty", zkerror.ErrInvalid)
	case size > maxACL:
		return fmt.Errorf("%w: WithACL: %d bytes, at most %d", zkerror.ErrInvalid, size, maxACL)
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
