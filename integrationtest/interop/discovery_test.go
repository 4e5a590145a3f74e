package interop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes/discovery"
	"github.com/go-leaderelection/leaderelection/recipes/group"
)

// Go and Curator find each other's instances, by asking and by watching, and learn of
// their end.
func TestDiscovery(t *testing.T) {
	curator.use(t)
	const name = "shop"
	base := newPath(t)
	d, err := discovery.New(connect(t), base)
	require.NoError(t, err)
	ours, err := d.Register(waiting(t), discovery.Instance{
		Name: name, ID: "of-go", Address: "go.example", Port: 1, Payload: json.RawMessage(`"of Go"`),
	})
	require.NoError(t, err)
	cache := curator.watch(base)
	curator.ask(t, "watch", base, base, name)
	instances := func() string {
		all, err := d.Instances(waiting(t), name)
		require.NoError(t, err)
		return describe(all)
	}
	const goes, javas = `of-go@go.example:1("of Go")`, `of-java@java.example:2("of Java")`
	unquoted := func(s string) string { return strings.ReplaceAll(s, `"`, "") }

	require.Equal(t, unquoted(goes), curator.ask(t, "discover", base, name))
	provider, err := d.Provider(waiting(t), name, discovery.Choice{})
	require.NoError(t, err)
	curator.ask(t, "register", "instance-of"+base, base, name, "of-java", 2)
	require.Equal(t, goes+","+javas, instances())
	awaitList(t, provider, goes+","+javas)
	awaitSaid(t, cache, "changed "+unquoted(goes+","+javas))
	require.Equal(t, unquoted(goes+","+javas), curator.ask(t, "discover", base, name))

	// Each is chosen in turn.
	chosen := map[string]bool{}
	for range 2 {
		i, err := provider.Choose()
		require.NoError(t, err)
		chosen[i.ID] = true
	}
	require.Len(t, chosen, 2)

	require.NoError(t, ours.Close(waiting(t)))
	awaitSaid(t, cache, "changed "+unquoted(javas))
	awaitList(t, provider, javas)
	curator.ask(t, "close", "instance-of"+base)
	awaitList(t, provider, "")
	require.Empty(t, instances())
	curator.ask(t, "close", base)
	require.NoError(t, provider.Close(waiting(t)))
}

func describe(instances []discovery.Instance) string {
	var all []string
	for _, i := range instances {
		all = append(all, fmt.Sprintf("%s@%s:%d(%s)", i.ID, i.Address, i.Port, i.Payload))
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// awaitList waits until a provider has these instances.
func awaitList(t *testing.T, p *discovery.Provider, want string) {
	t.Helper()
	limit, last := time.After(patience), ""
	for {
		if all, err := p.Instances(); err == nil || want == "" {
			if last = describe(all); last == want {
				return
			}
		}
		select {
		case <-p.Changes():
		case <-limit:
			require.FailNow(t, "the provider does not learn of it", "has %s, not %s", last, want)
		}
	}
}

// awaitSaid waits until a program says this.
func awaitSaid(t *testing.T, said <-chan string, want string) {
	t.Helper()
	limit, last := time.After(patience), ""
	for {
		select {
		case last = <-said:
			if strings.TrimSpace(last) == want {
				return
			}
		case <-limit:
			require.FailNow(t, "it is not said", "last %q, not %q", last, want)
		}
	}
}

// Members of Go and of the others see each other come and go: Curator's GroupMember and
// kazoo's Party.
func TestGroup(t *testing.T) {
	for _, p := range []*peer{kazoo, curator} {
		t.Run(p.name, func(t *testing.T) {
			p.use(t)
			path := newPath(t)
			g, err := group.NewGroup(connect(t), path, p.layout())
			require.NoError(t, err)
			var data []byte
			described := map[string]string{"of-go": "of-go", "of-peer": "of-peer"}
			members := []any{path}
			if p == curator {
				data = []byte("1")
				described = map[string]string{"of-go": "of-go(1)", "of-peer": "of-peer(2)"}
				members = []any{"member-of" + path}
			}
			ours, err := g.Join(waiting(t), "of-go", data)
			require.NoError(t, err)
			changes := g.Changes(waiting(t))
			p.ask(t, "join", "member-of"+path, path, "of-peer", "2")
			theirs := func(want string) {
				t.Helper()
				eventually(t, func() bool { return p.ask(t, "members", members...) == want }, "the peer does not see %s", want)
			}
			theirs(described["of-go"] + "," + described["of-peer"])
			awaitView(t, changes, "of-go", "of-peer")
			require.NoError(t, ours.Close(waiting(t)))
			theirs(described["of-peer"])
			awaitView(t, changes, "of-peer")
			p.ask(t, "close", "member-of"+path)
			awaitView(t, changes)
		})
	}
}

// awaitView waits until these are in a group.
func awaitView(t *testing.T, changes <-chan group.View, want ...string) {
	t.Helper()
	limit, last := time.After(patience), []string(nil)
	for {
		select {
		case v := <-changes:
			require.NoError(t, v.Err)
			last = nil
			for _, m := range v.Members {
				last = append(last, m.ID)
			}
			slices.Sort(last)
			if slices.Equal(last, want) {
				return
			}
		case <-limit:
			require.FailNow(t, "the view does not come", "last %v, not %v", last, want)
		}
	}
}
