package main

// The configuration file, in YAML. raftlog defaults writes one with all keys.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"go.yaml.in/yaml/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
)

// settings are the keys of a configuration file. Flags override them.
type settings struct {
	Cluster string     `yaml:"cluster"`
	ID      string     `yaml:"peer-id"`
	Addr    string     `yaml:"addr"`
	Listen  string     `yaml:"listen"`
	Dir     string     `yaml:"dir"`
	Peers   []filePeer `yaml:"peers"`

	Secret     string `yaml:"secret"`
	SecretFile string `yaml:"secret-file"`
	CAFile     string `yaml:"ca-file"`
	CertFile   string `yaml:"cert-file"`
	KeyFile    string `yaml:"key-file"`
	// AllowedNames are those of certificates; none allows every name.
	AllowedNames []string `yaml:"allowed-names"`
	Insecure     bool     `yaml:"insecure"`

	CompactFile     string        `yaml:"compact-file"`
	ElectionTimeout time.Duration `yaml:"election-timeout"`
	Heartbeat       time.Duration `yaml:"heartbeat"`
	Window          time.Duration `yaml:"window"`
	JoinTimeout     time.Duration `yaml:"join-timeout"`
	MaxRequestIDs   int           `yaml:"max-request-ids"`
	MaxData         int           `yaml:"max-data"`

	LogFormat string `yaml:"log-format"`
	LogLevel  string `yaml:"log-level"`
}

func defaultSettings() settings {
	return settings{
		ElectionTimeout: raftlog.DefaultElectionTimeout, Window: raftlog.DefaultWindow, JoinTimeout: raftlog.DefaultJoinTimeout,
		MaxRequestIDs: raftlog.DefaultMaxRequestIDs, MaxData: raftlog.DefaultMaxData,
		LogFormat: "text", LogLevel: "info",
	}
}

// filePeer is a peer in a file: its URL, or a mapping of id and addr.
type filePeer api.Peer

// UnmarshalYAML implements yaml.Unmarshaler.
func (p *filePeer) UnmarshalYAML(node *yaml.Node) error {
	at := func(format string, args ...any) error {
		return fmt.Errorf("line %d: %s", node.Line, fmt.Sprintf(format, args...))
	}
	if node.Kind == yaml.ScalarNode {
		parsed, err := parsePeer(node.Value)
		*p = filePeer(parsed)
		if err != nil {
			return at("%v", err)
		}
		return nil
	}
	if node.Kind != yaml.MappingNode {
		return at("a peer is tcp://host:port/id, or has the keys id and addr")
	}
	id, addr := "", ""
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case value.Kind != yaml.ScalarNode:
			return fmt.Errorf("line %d: %s of a peer is one value", value.Line, key.Value)
		case key.Value == "id":
			id = value.Value
		case key.Value == "addr":
			addr = value.Value
		default:
			return fmt.Errorf("line %d: unknown key %q; a peer has id and addr", key.Line, key.Value)
		}
	}
	parsed, err := parsePeer(addr + "/" + id)
	*p = filePeer(parsed)
	if err != nil {
		return at("%v", err)
	}
	return nil
}

// loadSettings reads a file over the defaults; without a name these are all.
func loadSettings(name string) (settings, error) {
	s := defaultSettings()
	if name == "" {
		return s, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return s, usage("-c: %w", err)
	}
	if err := parseSettings(text, &s); err != nil {
		return s, usage("-c %s: %w", name, err)
	}
	return s, nil
}

func parseSettings(text []byte, s *settings) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(s); err != nil && !errors.Is(err, io.EOF) { // EOF: nothing but comments
		return plainYAML(err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("expected exactly one YAML document")
	}
	return nil
}

// wrongType is how the decoder says that a value is of another type than its key.
var wrongType = regexp.MustCompile("(?s)cannot unmarshal \\S+(?: `.*`)? into (\\S+)")

var inWords = map[string]string{
	"time.Duration": "a duration, such as 1s", "int": "a number", "bool": "true or false", "string": "one text",
	"[]main.filePeer": "a list of peers", "main.settings": "a mapping of keys (see raftlog defaults)",
}

var unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)

// plainYAML says what is wrong in words of the file, and never a value, which may be a secret.
func plainYAML(err error) error {
	said := []string{strings.TrimPrefix(err.Error(), "yaml: ")}
	if typed, ok := errors.AsType[*yaml.TypeError](err); ok {
		said = typed.Errors
	}
	for i, s := range said {
		s = unknownField.ReplaceAllString(s, `unknown key "$1" (see raftlog defaults)`)
		said[i] = wrongType.ReplaceAllStringFunc(s, func(s string) string {
			wants := wrongType.FindStringSubmatch(s)[1]
			return "the value is not " + cmp.Or(inWords[wants], wants)
		})
	}
	return errors.New(strings.Join(said, "; "))
}

// place replaces {id} in paths by the ID of the peer.
func (s *settings) place() {
	s.Dir, s.CompactFile = s.placed(s.Dir), s.placed(s.CompactFile)
}

func (s settings) placed(path string) string { return strings.ReplaceAll(path, "{id}", s.ID) }

// nameless rejects a path that contains {id} if there is no ID.
func (s settings) nameless(path string) error {
	if s.ID != "" || !strings.Contains(path, "{id}") {
		return nil
	}
	return usage("%q contains {id}, and the ID of the peer is missing: give it by --peer-id, such as --peer-id a", path)
}

func (s settings) peers() (peers []api.Peer) {
	for _, p := range s.Peers {
		peers = append(peers, api.Peer(p))
	}
	return peers
}

// check rejects values that no command accepts. The names are those of keys and flags.
func (s settings) check() error {
	between := func(key string, d, least, most time.Duration, example string) error {
		if d < least || d > most {
			return usage("%s %v: must be from %v to %v, such as %s", key, d, least, most, example)
		}
		return nil
	}
	if s.Addr != "" {
		if err := hostPort("addr", s.Addr, false); err != nil {
			return err
		}
	}
	if s.Listen != "" {
		if err := hostPort("listen", s.Listen, true); err != nil {
			return err
		}
	}
	for i, p := range s.Peers {
		for _, q := range s.Peers[:i] {
			if p.ID == q.ID || p.Addr == q.Addr {
				return usage("peers: %s and %s have the same ID or address; give each peer its own, such as %s", peerURL(api.Peer(q)), peerURL(api.Peer(p)), examplePeer)
			}
		}
	}
	heartbeat := cmp.Or(s.Heartbeat, s.ElectionTimeout/5)
	switch {
	case s.MaxRequestIDs < 1:
		return usage("max-request-ids %d: must be positive, such as %d", s.MaxRequestIDs, raftlog.DefaultMaxRequestIDs)
	case s.MaxData < 1 || s.MaxData > maxData:
		return usage("max-data %d: must be from 1 to %d, such as %d", s.MaxData, maxData, raftlog.DefaultMaxData)
	}
	return cmp.Or(
		between("election-timeout", s.ElectionTimeout, 100*time.Millisecond, time.Hour, "1s"),
		between("heartbeat", heartbeat, s.ElectionTimeout/20, s.ElectionTimeout/2, "0s, which is a fifth of election-timeout"),
		between("window", s.Window, time.Minute, 10*365*24*time.Hour, "7h"),
		between("join-timeout", s.JoinTimeout, time.Millisecond, 24*time.Hour, "1m"),
	)
}

// maxData is the maximum of max-data.
const maxData = 16 << 20
