package cache

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// The feed is given random changes of a tree and read at random: a reader is never
// told what cannot follow from what it was told before, holds what is there once it
// has read all, and no more is held back than it and the tree know of.
func TestFeed(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		f, reader := newFeed(), newReader()
		c := &Cache{memory: memory{root: newZnode(nil, "/a")}, path: "/a"}
		tree := map[string]*Znode{}
		zxid, fresh := int64(0), false
		var clear func(p string)
		clear = func(p string) {
			for child := range tree {
				if path.Dir(child) == p {
					clear(child)
				}
			}
			if z := tree[p]; z != nil {
				f.deleted(z)
				delete(tree, p)
			}
		}
		receive := func() {
			reader.apply(c, f.next())
			f.sent()
		}
		for range 300 {
			zxid++
			p := "/a"
			for range r.IntN(4) {
				p += "/" + string(rune('a'+r.IntN(2)))
			}
			now := &Znode{Path: p, Data: fmt.Append(nil, zxid), Stat: zk.Stat{Czxid: zxid, Mzxid: zxid}}
			old := tree[p]
			switch what := r.IntN(7); {
			case what < 2 && old == nil && (p == "/a" || tree[path.Dir(p)] != nil):
				tree[p] = now
				f.created(now)
			case what == 2 && old != nil:
				now.Stat.Czxid = old.Stat.Czxid
				tree[p] = now
				f.changed(old, now)
			case what == 3:
				clear(p)
			case what == 4 && r.IntN(4) == 0:
				fresh = !fresh
				if fresh {
					f.turned(Fresh)
				} else {
					f.turned(Stale)
				}
			case f.first != nil && r.IntN(3) > 0:
				receive()
			}
			held := 0
			for e := f.first; e != nil; e = e.next {
				held++
			}
			require.LessOrEqual(t, held, len(reader.nodes)+len(tree)+1)
		}
		for f.first != nil {
			receive()
		}
		require.Empty(t, reader.faults, "seed %d", seed)
		require.Empty(t, f.paths)
		require.Equal(t, !fresh, reader.stale)
		require.Len(t, reader.nodes, len(tree))
		for p, z := range tree {
			require.Equal(t, *z, reader.nodes[p])
		}
	}
}

func TestKindNames(t *testing.T) {
	names := []string{}
	for k := range Fresh + 2 {
		names = append(names, k.String())
	}
	require.Equal(t, "Kind(0) created changed deleted stale fresh Kind(6)", fmt.Sprint(names)[1:len(fmt.Sprint(names))-1])
	require.True(t, slices.IsSorted([]Kind{Created, Changed, Deleted, Stale, Fresh}))
}
