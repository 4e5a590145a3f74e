package difftest

import (
	"math/rand/v2"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// generator creates requests that are likely to affect each other: it uses few paths and versions.
// Some requests are malformed, and no client library would send them.
type generator struct{ r *rand.Rand }

var paths = []string{
	"/", "/a", "/a", "/b", "/c", "/a/a", "/a/a", "/a/b", "/a/b/c", "/b/a", "/b/b", "/b/s-", "/c/s-", "/a/s-", "/s",
}

var oddPaths = []string{
	"", "a", "/a/", "//", "/a//b", "/.", "/..", "/a/../b", "/a/./b", "/...", "/.a", "/a.", "/zookeeper", "/zookeeper/x",
	"/zookeeper/quota", "/zookeeper/config", "/zookeeper/quota/x", "/é", "/\U0001D11E", "/\x01", "/a\x7f", "/\u0080", "/\u00a0",
	"/\ufffe", "/\ue000", "/\uffef", "/a\x00b", "/a/b/c/d/e/f", " ", "/ ", "/a b",
}

func pickRandom[T any](g *generator, v []T) T { return v[g.r.IntN(len(v))] }

func (g *generator) randomPath() string {
	if g.r.IntN(12) == 0 {
		return pickRandom(g, oddPaths)
	}
	return pickRandom(g, paths)
}

func (g *generator) randomVersion() int32 {
	return pickRandom(g, []int32{-1, -1, -1, -1, 0, 0, 1, 2, 7, -2})
}

func (g *generator) randomData() []byte {
	return pickRandom(g, [][]byte{nil, {}, []byte("x"), []byte("some text"), {0, 1, 2, 255}})
}

func (g *generator) randomACL() []wire.ACL {
	open := []wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}
	if g.r.IntN(5) > 0 {
		return open
	}
	all := int32(31)
	return pickRandom(g, [][]wire.ACL{
		nil,
		{{Perms: all, Scheme: "world", ID: "everybody"}},
		{{Perms: all, Scheme: "nonsense", ID: "x"}},
		{{Perms: all, Scheme: "auth", ID: ""}},
		{{Perms: 1, Scheme: "world", ID: "anyone"}, {Perms: all, Scheme: "auth", ID: ""}},
		{{Perms: all, Scheme: "digest", ID: "u1:oLkWNl7SOHIkyV0KT/Gqn9QDk4U="}},
		{{Perms: all, Scheme: "digest", ID: "nopassword"}},
		{{Perms: all, Scheme: "digest", ID: "a:b:c"}},
		{{Perms: all, Scheme: "digest", ID: ":x"}, {Perms: 1, Scheme: "world", ID: "anyone"}},
		{{Perms: 17, Scheme: "world", ID: "anyone"}, {Perms: 31, Scheme: "world", ID: "anyone"}},
		{{Perms: 23, Scheme: "world", ID: "anyone"}},
		{{Perms: 27, Scheme: "world", ID: "anyone"}},
		{{Perms: all, Scheme: "ip", ID: "127.0.0.1"}},
		{{Perms: all, Scheme: "ip", ID: "127.0.0.0/8"}},
		{{Perms: 31, Scheme: "ip", ID: "10.0.0.0/8"}, {Perms: 31, Scheme: "world", ID: "anyone"}},
		{{Perms: all, Scheme: "ip", ID: "127.0.0.1/33"}},
		{{Perms: all, Scheme: "ip", ID: "::1"}},
		{{Perms: all, Scheme: "ip", ID: "127.0.0"}},
		{{Perms: 31, Scheme: "world", ID: "anyone"}, {Perms: 31, Scheme: "world", ID: "anyone"}},
		{{Perms: 0, Scheme: "world", ID: "anyone"}, {Perms: 31, Scheme: "world", ID: "anyone"}},
		{{Perms: all, Scheme: "super", ID: ""}},
	})
}

func (g *generator) randomFlags() int32 {
	return pickRandom(g, []int32{0, 0, 0, 1, 1, 2, 3, 3, 4, 5, 6, 7, -1, 100})
}

// randomWrite returns a request that can also be part of a multi.
func (g *generator) randomWrite(inMulti bool) wire.Request {
	r := wire.Request{Path: g.randomPath(), TTL: -1}
	switch x := g.r.IntN(20); {
	case x < 8:
		r.Op = pickRandom(g, []wire.Op{wire.Create, wire.Create, wire.Create2, wire.Create2, wire.CreateContainer, wire.CreateTTL})
		r.Data, r.ACL, r.Flags = g.randomData(), g.randomACL(), g.randomFlags()
		if r.Op == wire.CreateContainer && g.r.IntN(4) > 0 {
			r.Flags = 4
		}
		if r.Op == wire.CreateTTL {
			r.TTL = pickRandom(g, []int64{3600000, 3600000, 0, -1, 1 << 40, 1<<40 - 1})
			// Use the create mode of TTL nodes in most cases: another mode with createTTL and without a
			// TTL makes a 3.8 server exit.
			if g.r.IntN(4) > 0 || r.TTL == -1 || inMulti {
				r.Flags = 5 + int32(g.r.IntN(2))
			}
		} else if inMulti && (r.Flags == 5 || r.Flags == 6) {
			// Replace the modes of TTL nodes, which are invalid here: after an invalid mode the
			// server does not roll back the earlier operations of the multi. runUndefinedRequests
			// tests this.
			r.Flags = 0
		}
	case x < 13:
		r.Op, r.Version = wire.Delete, g.randomVersion()
	case x < 18 || !inMulti:
		r.Op, r.Data, r.Version = wire.SetData, g.randomData(), g.randomVersion()
	default:
		r.Op, r.Version = wire.Check, g.randomVersion()
	}
	return r
}

func (g *generator) randomRequest(zxid int64) wire.Request {
	var r wire.Request
	r.TTL = -1
	switch x := g.r.IntN(100); {
	case x < 40:
		return g.randomWrite(false)
	case x < 72:
		r.Op = pickRandom(g, []wire.Op{wire.Exists, wire.Exists, wire.GetData, wire.GetData, wire.GetChildren, wire.GetChildren2})
		r.Path, r.Watch = g.randomPath(), g.r.IntN(2) == 0
	case x < 80:
		r.Op = wire.Multi
		for range g.r.IntN(5) {
			r.Ops = append(r.Ops, g.randomWrite(true))
		}
	case x < 83:
		r.Op = wire.MultiRead
		for range g.r.IntN(5) {
			sub := wire.Request{Path: g.randomPath(), Watch: g.r.IntN(3) == 0}
			sub.Op = pickRandom(g, []wire.Op{wire.GetData, wire.GetChildren})
			r.Ops = append(r.Ops, sub)
		}
	case x < 86:
		r.Op, r.Path, r.ACL, r.Version = wire.SetACL, g.randomPath(), g.randomACL(), g.randomVersion()
		if r.Path == "/" {
			r.Path = "/a"
		}
	case x < 88:
		r.Op, r.Path = wire.GetACL, g.randomPath()
	case x < 89:
		r.Op, r.Path = wire.GetAllChildrenNumber, g.randomPath()
	case x < 91:
		r.Op, r.Path = wire.GetEphemerals, g.randomPath()
	case x < 92:
		// Use known paths only, because the server returns others in Java's encoding.
		r.Op, r.Path = wire.Sync, pickRandom(g, paths)
	case x < 94:
		r.Op, r.Path, r.Flags = wire.AddWatch, g.randomPath(), pickRandom(g, []int32{0, 1, 1, 2})
	case x < 96:
		r.Op, r.Path, r.Flags = wire.RemoveWatches, g.randomPath(), pickRandom(g, []int32{1, 2, 3, 3, 0, 4})
	case x < 97:
		r.Op = wire.WhoAmI
	case x < 98:
		r.Op, r.Scheme, r.Data = wire.Auth, "digest", pickRandom(g, [][]byte{[]byte("u1:p1"), []byte("u2:p2"), []byte("nocolon")})
	case x < 99:
		return g.randomSetWatches(zxid)
	default:
		r.Op = pickRandom(g, []wire.Op{wire.Ping, wire.Reconfig, wire.Check})
		if r.Op == wire.Check {
			r.Path, r.Version = "/not/there", -1
		}
	}
	return r
}

// randomSetWatches returns a setWatches request, as a client sends it after a reconnect.
func (g *generator) randomSetWatches(zxid int64) wire.Request {
	r := wire.Request{Zxid: max(0, zxid-int64(g.r.IntN(30)))}
	r.Op = pickRandom(g, []wire.Op{wire.SetWatches, wire.SetWatches2})
	some := func() []string {
		var out []string
		for range g.r.IntN(4) {
			out = append(out, pickRandom(g, paths))
		}
		return out
	}
	r.DataW, r.ExistW, r.ChildW = some(), some(), some()
	if r.Op == wire.SetWatches2 {
		r.Persistent, r.Recursive = some(), some()
	}
	return r
}
