package contender

import (
	"slices"
	"strings"
)

// ownZnode is the contender's znode. It has no name before it is created, and after it was deleted.
type ownZnode struct {
	name    string
	session int64 // that owns it, 0 if unknown
	token   int64 // its creation zxid, 0 if unknown
	// renamingTo is the name to which the contender is being renamed, or empty. The znode then has one of
	// the two names.
	renamingTo string
}

// creates contains the traces of the contender's creates. Each create has another prefix, which is in
// prefixes until it is known that its znode does not exist. Creates without a reply may have left znodes
// that differ from the contender's znode.
type creates struct {
	prefixes   []string // of the names of all znodes of the contender that may exist, with its own
	unanswered bool     // the last create was not answered: search for its znode
	found      []string // by a search, and neither taken nor deleted yet
	orphans    []string // shown by a listing, and not deleted yet
	searched   bool     // the orphans are known as of the last Search
	// outlived is a znode whose session has expired, unless its name contains no GUID.
	outlived string
}

// search searches for the znodes of all creates. last reports that this belongs to the removal.
func (c *Contender) search(last bool) {
	c.send(Request{Kind: Search, Prefixes: slices.Clone(c.creates.prefixes), Last: last})
}

// forget records that the contender's znode does not exist any more. Znodes of other creates may
// exist, in any session.
func (c *Contender) forget() {
	names := func(prefix string) bool { return c.znode.name != "" && strings.HasPrefix(c.znode.name, prefix) }
	if i := slices.IndexFunc(c.creates.prefixes, names); i >= 0 {
		c.creates.prefixes = slices.Delete(c.creates.prefixes, i, i+1)
	}
	c.znode = ownZnode{}
}

// outlive forgets the contender's znode, whose session has expired. Most servers have deleted
// it. But ClickHouse Keeper does not continue sessions: it gives a client that reconnects a
// new session, and keeps the znodes of the old one until its timeout. So the znode is deleted
// in the background, in the next session. A name without a GUID is not enough for that: if the
// queue was created again since, another contender can have it.
func (c *Contender) outlive() {
	if c.cfg.Naming.HasGUID() {
		c.creates.outlived = c.znode.name
	}
	c.forget()
}

// removeOrphan deletes one of the contender's orphaned znodes, which block later contenders.
func (c *Contender) removeOrphan() {
	if len(c.creates.orphans) > 0 && c.send(Request{Kind: Delete, Name: c.creates.orphans[0]}) {
		c.out = append(c.out, Output{Kind: Removing, Name: c.creates.orphans[0]})
		c.creates.orphans = c.creates.orphans[1:]
	}
}
