// Package znode is what elections and recipes need to do to a znode besides
// standing in line: know a valid path, and make the parents.
package znode

import (
	"fmt"
	"path"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// CheckPath refuses, with zkerror.ErrInvalidPath, what ZooKeeper does not accept,
// and the root.
func CheckPath(node string) error {
	switch {
	case !strings.HasPrefix(node, "/"):
		return fmt.Errorf("%w: %q does not begin with a slash", zkerror.ErrInvalidPath, node)
	case node == "/":
		return fmt.Errorf("%w: the root cannot be used", zkerror.ErrInvalidPath)
	case path.Clean(node) != node:
		return fmt.Errorf("%w: %q, did you mean %q?", zkerror.ErrInvalidPath, node, path.Clean(node))
	case strings.ContainsFunc(node, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 && r <= 0xffff
	}):
		return fmt.Errorf("%w: %q has a character that ZooKeeper does not accept", zkerror.ErrInvalidPath, node)
	}
	return nil
}
