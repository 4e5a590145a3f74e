package zktest

import (
	"strings"
	"unicode/utf8"
)

const (
	pathZooKeeper = "/zookeeper"
	pathQuota     = "/zookeeper/quota"
	pathConfig    = "/zookeeper/config"
)

// parentPath returns p without its last element. The parent of "/a" is "".
func parentPath(p string) string { return p[:strings.LastIndexByte(p, '/')] }

// reservedPath reports whether p is a znode that the server has created for itself, so that clients
// cannot delete it.
func reservedPath(p string) bool {
	return p == "/" || p == pathZooKeeper || p == pathQuota || p == pathConfig
}

// validPath reports whether a real server accepts the path in a write. A real server rejects characters
// beyond the basic plane, because it handles them as two surrogates.
func validPath(p string) bool {
	if p == "" || p[0] != '/' {
		return false
	}
	if p == "/" {
		return true
	}
	if p[len(p)-1] == '/' {
		return false
	}
	for seg := range strings.SplitSeq(p[1:], "/") {
		if seg == "" || seg == "." || seg == ".." {
			return false
		}
	}
	for i := 0; i < len(p); {
		c := p[i]
		if c < utf8.RuneSelf {
			if c <= 0x1f || c == 0x7f {
				return false
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(p[i:])
		if r == utf8.RuneError || r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 {
			return false
		}
		i += n
	}
	return true
}
