package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
)

// backend makes a function that makes stores of one record, by the address that the user
// has given. What a store needs, such as a connection, ends with the process.
type backend func(address *url.URL) (func() (changefeed.Store, error), error)

// backends are those that --store knows, by the scheme of its address. A store that is
// added has a file of its own here, whose init adds to them.
var backends = map[string]backend{
	"memory": func(*url.URL) (func() (changefeed.Store, error), error) {
		table := memory.NewTable()
		return func() (changefeed.Store, error) { return table.Store("example"), nil }, nil
	},
}

// known lists the schemes.
func known() string {
	var all []string
	for scheme := range backends {
		all = append(all, scheme+":")
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func open(address string) (func() (changefeed.Store, error), error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	b, ok := backends[u.Scheme]
	if !ok {
		return nil, fmt.Errorf("--store %s: known are %s", address, known())
	}
	return b(u)
}
