package discovery

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// Discovery is a tree of services. Its methods may be called from any goroutine.
type Discovery struct{ setup *recipe.Setup }

// New returns the discovery tree below base, which Curator calls basePath. It sends no
// request. Errors: [recipes.ErrInvalid].
func New(conn *zk.Conn, base string, options ...Option) (*Discovery, error) {
	s, err := recipe.New(conn, base, options, Option.ApplyDiscovery)
	if err != nil {
		return nil, err
	}
	return &Discovery{s}, nil
}

// Names returns the sorted names of the services, according to the server that the
// connection uses. A service without instances may be included until ZooKeeper removes its
// node.
func (d *Discovery) Names(ctx context.Context) ([]string, error) {
	names, err := connection.ListExisting(ctx, d.setup.Conn, d.setup.Path)
	if err != nil {
		return nil, d.setup.Fail("list", d.setup.Path, err)
	}
	slices.Sort(names)
	return names, nil
}

// Instances returns the instances of a service, including disabled ones, sorted by the
// names of their znodes, according to the server that the connection uses. If some
// instances cannot be read, Instances returns the others together with an error that joins
// an [UnreadableError] for each of them. With any other error it returns no instances.
func (d *Discovery) Instances(ctx context.Context, name string) ([]Instance, error) {
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	service := d.service(name)
	entries, err := recipe.ListChildren(ctx, d.setup.Conn, service)
	if err != nil {
		return nil, d.setup.Fail("list", service.Path, err)
	}
	var instances []Instance
	var unreadable []error
	for _, e := range sortedEntries(entries) {
		if e.unreadable != nil {
			unreadable = append(unreadable, e.unreadable)
		} else {
			instances = append(instances, e.instance)
		}
	}
	return instances, errors.Join(unreadable...)
}

// entry is a child of the znode of a service.
type entry struct {
	instance   Instance
	unreadable *UnreadableError // nil if the child is an instance
}

// service returns a description of how to read the children of the znode of a service.
func (d *Discovery) service(name string) recipe.ChildConfig[entry] {
	dir := path.Join(d.setup.Path, name)
	return recipe.ChildConfig[entry]{Path: dir, Parse: func(name string, found watch.Found, err error) (e entry, fatal error) {
		switch {
		case err == nil:
			e.instance, err = decode(found.Data)
		case !connection.IsUnreadable(err):
			return e, err
		}
		if err != nil {
			e.unreadable = &UnreadableError{path.Join(dir, name), connection.Refine(nil, err)}
		}
		return e, nil
	}}
}

// sortedEntries returns the entries, sorted by the names of their znodes.
func sortedEntries(entries map[string]entry) []entry {
	all := make([]entry, 0, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		all = append(all, entries[name])
	}
	return all
}
