package queue

import (
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
)

// Option is an option of a [Queue]: those of this package, and every [recipes.Option].
type Option interface{ ApplyQueue(*recipe.Setup) }

// ownOption is an option of this package.
type ownOption func(*recipe.Setup)

func (o ownOption) ApplyQueue(s *recipe.Setup) { o(s) }

// config contains the options of this package. The zero config has no limits; New sets defaultMaxAttempts.
type config struct {
	maxItems, maxAttempts, prefetch int
	claims, dead                    string // the paths of the directories
}

// WithMaxItems sets the number of items at which Put returns [ErrFull], or waits ([WithWaiting]). 0, the
// default, means no limit. Claimed and delayed items count. Concurrent calls of Put can exceed the limit.
func WithMaxItems(n int) Option {
	return ownOption(recipe.Own("queue.WithMaxItems", func(c *config) { c.maxItems = n }))
}

// WithMaxAttempts sets the number of deliveries after which an item becomes a [DeadLetter], with its data and the
// reason. The default is 25, as in River and asynq: with the delays of [Queue.Handle], an item that always fails is
// delivered for 16 minutes. Nothing is lost, because [Queue.Requeue] puts a dead letter back. 0 means no limit: then
// an item that makes its consumer crash is delivered to the next consumer without end, and an item that always fails
// once a minute.
//
// Each consumer decides by its own limit. Consumers of Curator and kazoo have no limit, count no attempts, and do
// not read dead letters. If these consumers must receive every item that fails here, use 0.
func WithMaxAttempts(n int) Option {
	return ownOption(recipe.Own("queue.WithMaxAttempts", func(c *config) { c.maxAttempts = n }))
}

// defaultMaxAttempts is the limit of attempts without WithMaxAttempts.
const defaultMaxAttempts = 25

// WithPrefetch sets the number of items that a loop over [Queue.Items] claims before it reaches them, at most
// 10000. 0, the default, means 1. Other consumers cannot take these items, and each counts as an
// attempt if this process dies.
func WithPrefetch(n int) Option {
	return ownOption(recipe.Own("queue.WithPrefetch", func(c *config) { c.prefetch = n }))
}

// maxPrefetch is the limit of WithPrefetch, because a loop allocates memory for so many items.
const maxPrefetch = 10000

// WithClaims sets the directory of the claims, which Curator calls the lock path. The default is
// <path>-claims. Each queue needs a separate directory. With [recipes.WithKazooLayout] it is
// <path>/taken, and the option is a [recipes.ErrInvalid].
func WithClaims(dir string) Option {
	return ownOption(recipe.Own("queue.WithClaims", func(c *config) { c.claims = dir }))
}

// WithDead sets the directory of the dead letters. The default is <path>-dead, or <path>/dead with
// [recipes.WithKazooLayout].
func WithDead(dir string) Option {
	return ownOption(recipe.Own("queue.WithDead", func(c *config) { c.dead = dir }))
}

// applyDefaults sets the fields that the user has not set, checks all options, and returns the directory of the
// items.
func (c *config) applyDefaults(queue string, layout recipe.Layout) (items string, err error) {
	switch {
	case c.maxItems < 0, c.maxAttempts < 0, c.prefetch < 0:
		return "", fmt.Errorf("%w: WithMaxItems(%d), WithMaxAttempts(%d), WithPrefetch(%d): must not be negative",
			connection.ErrInvalid, c.maxItems, c.maxAttempts, c.prefetch)
	case c.prefetch > maxPrefetch:
		return "", fmt.Errorf("%w: WithPrefetch(%d): must be at most %d", connection.ErrInvalid, c.prefetch, maxPrefetch)
	case layout == recipe.Kazoo && c.claims != "":
		return "", fmt.Errorf("%w: WithClaims: kazoo's layout uses %s/taken", connection.ErrInvalid, queue)
	}
	items, claims, dead := queue, queue+"-claims", queue+"-dead"
	if layout == recipe.Kazoo {
		items, claims, dead = queue+"/entries", queue+"/taken", queue+"/dead"
	}
	for _, d := range []struct {
		dir    *string
		preset string
	}{{&c.claims, claims}, {&c.dead, dead}} {
		if *d.dir == "" {
			*d.dir = d.preset
		}
		if err := connection.CheckPath(*d.dir); err != nil {
			return "", err
		}
	}
	if c.claims == items || c.dead == items || c.claims == c.dead {
		return "", fmt.Errorf("%w: items, claims and dead letters need different directories", connection.ErrInvalid)
	}
	c.prefetch = max(c.prefetch, 1)
	return items, nil
}

// PutOption is an option of [Queue.Put].
type PutOption interface{ applyPut(*putOptions) }

type putOptions struct {
	position position
	at       time.Time
	wait     bool
}

func putOptionsOf(opts []PutOption) (o putOptions, err error) {
	err = recipe.EachOption(opts, func(opt PutOption) error { opt.applyPut(&o); return nil })
	return o, err
}

type putOption func(*putOptions)

func (f putOption) applyPut(o *putOptions) { f(o) }

// WithPriority puts an item before all items with greater numbers. n is a 32-bit integer, or 0
// to 999 with [recipes.WithKazooLayout]. Items without a priority come before all others; with
// [recipes.WithKazooLayout] they have priority 100. Curator's DistributedPriorityQueue can share a
// queue of such items.
func WithPriority(n int) PutOption {
	return putOption(func(o *putOptions) { o.position.priority, o.position.hasPriority = n, true })
}

// WithTime delays an item until t, with a resolution of one millisecond. The delay is measured by
// the clock of the ensemble's leader, so the clocks of producers and consumers do not have
// to agree. A time in the past does not delay the item. Curator's DistributedDelayQueue can
// share a queue of such items, but uses the clocks of its clients. An item cannot have both
// a time and a priority, and cannot have a time with [recipes.WithKazooLayout].
func WithTime(t time.Time) PutOption {
	return putOption(func(o *putOptions) { o.at = t })
}

// WithWaiting lets Put wait, while the queue has as many items as [WithMaxItems] allows, instead of returning
// [ErrFull]. A waiting Put counts the items after 50 ms, and then less often, up to once a second. Waiting
// calls are not served in the order in which they were made.
func WithWaiting() PutOption {
	return putOption(func(o *putOptions) { o.wait = true })
}
