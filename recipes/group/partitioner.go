package group

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/codec"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/value"
)

// Partitioner divides a set of parts among the members of a group. It does not keep local state,
// and may be used by any number of goroutines.
type Partitioner struct {
	setup *recipe.Setup
	group *Group
	parts *value.Value[[]string]
}

// NewPartitioner returns the partitioner at path. It sends no request. The layout of znodes
// is this library's; [recipes.WithKazooLayout] changes only the names of the locks. Errors:
// [recipes.ErrInvalid].
func NewPartitioner(conn *zk.Conn, path string, opts ...Option) (*Partitioner, error) {
	s, err := recipe.New(conn, path, opts, Option.ApplyGroup)
	if err != nil {
		return nil, err
	}
	group, err := New(conn, path+"/members", s.Settings(), recipe.WithLayout(recipe.Curator), WithoutData())
	if err != nil {
		return nil, err
	}
	parts, err := value.New(conn, path+"/parts", codec.JSON[[]string](), s.Settings())
	if err != nil {
		return nil, err
	}
	return &Partitioner{s, group, parts}, nil
}

// maxPartsSize limits the names of all parts together, in bytes of their JSON, which is in one
// znode.
const maxPartsSize = 512 << 10

// Parts returns the sorted names of the parts.
func (p *Partitioner) Parts(ctx context.Context) ([]string, error) {
	parts, _, err := p.parts.Get(ctx)
	return parts, p.setup.Fail("read parts of", p.setup.Path, err)
}

// SetParts sets the parts for all members. It may be called at any time, by members and
// other clients. A name can be any non-empty text. SetParts returns
// [recipes.ErrInvalid] if the names encoded as JSON exceed half a megabyte. Other
// errors are those of [value.Value.Set].
func (p *Partitioner) SetParts(ctx context.Context, parts []string) error {
	_, err := p.UpdateParts(ctx, func(was []string) ([]string, error) { return parts, nil })
	return err
}

// UpdateParts replaces the parts by the result of f and returns them, sorted and without
// duplicates. f is called again if another client has changed the parts in the meantime. If
// f returns an error, UpdateParts returns it, wrapped.
func (p *Partitioner) UpdateParts(ctx context.Context, f func(parts []string) ([]string, error)) ([]string, error) {
	parts, err := p.parts.Update(ctx, func(was []string) ([]string, error) {
		is, err := f(slices.Clone(was))
		if err != nil {
			return nil, err
		}
		is = slices.Clone(is)
		slices.Sort(is)
		is = slices.Compact(is)
		text, _ := json.Marshal(is) // strings
		if len(text) > maxPartsSize || len(is) > 0 && is[0] == "" {
			return nil, fmt.Errorf("%w: a name is empty, or the %d names are too long (%d bytes)", recipes.ErrInvalid, len(is), len(text))
		}
		return is, nil
	})
	return parts, p.setup.Fail("set parts of", p.setup.Path, err)
}

// Owner returns the member to which part is assigned: the member with the greatest hash of
// member and part. If a member joins, only parts that are assigned to it move; if a member
// leaves, only its parts move. Owner returns "" if members is empty.
func Owner(part string, members []string) string {
	owner, most := "", uint64(0)
	for _, m := range members {
		n := weigh(m, part)
		if owner == "" || n > most || n == most && m < owner {
			owner, most = m, n
		}
	}
	return owner
}

// weigh returns a hash that must be the same in all versions of this library: FNV-1a, and a final
// step by which every bit of the input changes every bit of the result.
func weigh(member, part string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d:%s%s", len(member), member, part)
	n := h.Sum64()
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// lockPath returns the path of the lock of a part.
func (p *Partitioner) lockPath(part string) string {
	name := url.PathEscape(part)
	if name == "." || name == ".." {
		name = strings.ReplaceAll(name, ".", "%2E")
	}
	return p.setup.Path + "/locks/" + name
}

// Part is a part that was granted to this member, which holds a lock on it. Token, Done,
// Deadline, Context and Multi are those of the lock. A Part must be released, even if it is
// lost.
type Part struct {
	*lock.Hold
	name    string
	wanted  chan struct{}
	revoked atomic.Bool
}

// Name returns the name of the part.
func (p *Part) Name() string { return p.name }

// Wanted returns a channel that is closed when the part should be released: it is assigned
// to another member, it was removed from the parts, or this member leaves. The program
// should finish its work on the part and call Release. Otherwise the part is released after
// the grace period.
func (p *Part) Wanted() <-chan struct{} { return p.wanted }

// Err returns nil while the part is held, and afterwards the reason why it is not:
// [ErrRevoked] if it was not released in time, or the error of [lock.Hold.Err].
func (p *Part) Err() error {
	err := p.Hold.Err()
	if err != nil && p.revoked.Load() {
		return fmt.Errorf("%w: %w", ErrRevoked, err)
	}
	return err
}

// Join joins as member id, and blocks until other clients can see the member. grace is the
// time for which a part may be kept after it was assigned to another member; 0 means that
// it is released immediately. Errors are those of [Group.Join].
func (p *Partitioner) Join(ctx context.Context, id string, grace time.Duration) (*Share, error) {
	if grace < 0 {
		return nil, fmt.Errorf("%w: grace %v: must not be negative", recipes.ErrInvalid, grace)
	}
	member, err := p.group.Join(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	return newShare(p, member, grace), nil
}
