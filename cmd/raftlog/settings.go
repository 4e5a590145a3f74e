package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"go.yaml.in/yaml/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// settings contains the keys of a configuration file, which flags override. Command defaults prints a file
// with all keys.
type settings struct {
	Cluster string     `yaml:"cluster"`
	ID      string     `yaml:"peer-id"`
	Addr    string     `yaml:"addr"`
	Listen  string     `yaml:"listen"`
	Dir     string     `yaml:"dir"`
	Peers   []filePeer `yaml:"peers"`

	Secret     string `yaml:"secret"`
	SecretFile string `yaml:"secret-file"`
	// ClientSecret and ClientSecretFile are the same for clients.
	ClientSecret     string `yaml:"client-secret"`
	ClientSecretFile string `yaml:"client-secret-file"`
	CAFile           string `yaml:"ca-file"`
	CertFile         string `yaml:"cert-file"`
	KeyFile          string `yaml:"key-file"`
	// AllowedNames and AllowedClientNames contain the names of the certificates of peers and of clients.
	AllowedNames       []string `yaml:"allowed-names"`
	AllowedClientNames []string `yaml:"allowed-client-names"`
	Insecure           bool     `yaml:"insecure"`

	CompactFile     string        `yaml:"compact-file"`
	ElectionTimeout time.Duration `yaml:"election-timeout"`
	Heartbeat       time.Duration `yaml:"heartbeat"`
	Window          time.Duration `yaml:"window"`
	JoinTimeout     time.Duration `yaml:"join-timeout"`
	MaxRequestIDs   int           `yaml:"max-request-ids"`
	MaxData         int           `yaml:"max-data"`

	LogFormat string `yaml:"log-format"`
	LogLevel  string `yaml:"log-level"`

	warnings []string // about files that all users can read
}

func defaultSettings() settings {
	return settings{
		ElectionTimeout: raftlog.DefaultElectionTimeout, Window: raftlog.DefaultWindow, JoinTimeout: raftlog.DefaultJoinTimeout,
		MaxRequestIDs: raftlog.DefaultMaxRequestIDs, MaxData: raftlog.DefaultMaxData,
		LogFormat: "text", LogLevel: "info",
	}
}

// filePeer is a peer in a configuration file: a URL, or a mapping with id and addr.
type filePeer api.Peer

// UnmarshalYAML implements yaml.Unmarshaler.
func (p *filePeer) UnmarshalYAML(node *yaml.Node) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("line %d: %s", node.Line, fmt.Sprintf(format, args...))
	}
	if node.Kind == yaml.ScalarNode {
		parsed, err := parsePeer(node.Value)
		*p = filePeer(parsed)
		if err != nil {
			return fail("%v", err)
		}
		return nil
	}
	if node.Kind != yaml.MappingNode {
		return fail("a peer must be tcp://host:port/id, or have the keys id and addr")
	}
	id, addr := "", ""
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case value.Kind != yaml.ScalarNode:
			return fmt.Errorf("line %d: %s of a peer must be one value", value.Line, key.Value)
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
		return fail("%v", err)
	}
	return nil
}

// readSettings returns the defaults with the values of the file. The name is empty if there is no
// file.
func readSettings(name string) (settings, error) {
	s := defaultSettings()
	if name == "" {
		return s, nil
	}
	text, warning, err := cmdline.ReadConfig(name)
	if err != nil {
		return s, newUsageError("-c: %w", err)
	}
	if err := parseSettings(text, &s); err != nil {
		return s, newUsageError("-c %s: %w", name, err)
	}
	if s.Secret != "" || s.ClientSecret != "" {
		s.warn("-c", warning)
	}
	return s, nil
}

// warn adds a warning about the file of a flag, unless it is empty.
func (s *settings) warn(flag, warning string) {
	if warning != "" {
		s.warnings = append(s.warnings, flag+": "+warning)
	}
}

// parseSettings sets the keys that the text contains.
func parseSettings(text []byte, s *settings) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(s); err != nil && !errors.Is(err, io.EOF) { // EOF: the file contains only comments
		return toPlainError(err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("expected exactly one YAML document")
	}
	return nil
}

// typeErrorPattern matches the error of the decoder for a value of a wrong type.
var typeErrorPattern = regexp.MustCompile("(?s)cannot unmarshal \\S+(?: `.*`)? into (\\S+)")

// typeNames describes types for users.
var typeNames = map[string]string{
	"time.Duration": "a duration, such as 1s", "int": "a number", "bool": "true or false", "string": "a string",
	"[]main.filePeer": "a list of peers", "main.settings": "a mapping of keys (see raftlog defaults)",
}

// fieldErrorPattern matches the error of the decoder for an unknown key.
var fieldErrorPattern = regexp.MustCompile(`field (\S+) not found in type \S+`)

// toPlainError replaces names of Go types by descriptions, and removes values, which may be
// secrets.
func toPlainError(err error) error {
	messages := []string{strings.TrimPrefix(err.Error(), "yaml: ")}
	if typed, ok := errors.AsType[*yaml.TypeError](err); ok {
		messages = typed.Errors
	}
	for i, s := range messages {
		s = fieldErrorPattern.ReplaceAllString(s, `unknown key "$1" (see raftlog defaults)`)
		messages[i] = typeErrorPattern.ReplaceAllStringFunc(s, func(s string) string {
			want := typeErrorPattern.FindStringSubmatch(s)[1]
			return "the value is not " + cmp.Or(typeNames[want], want)
		})
	}
	return errors.New(strings.Join(messages, "; "))
}

// expandPaths replaces {id} in paths by the ID of the peer.
func (s *settings) expandPaths() {
	s.Dir, s.CompactFile = s.expandPath(s.Dir), s.expandPath(s.CompactFile)
}

func (s settings) expandPath(path string) string { return strings.ReplaceAll(path, "{id}", s.ID) }

// checkPath rejects a path that contains {id} if the ID is not known.
func (s settings) checkPath(path string) error {
	if s.ID != "" || !strings.Contains(path, "{id}") {
		return nil
	}
	return newUsageError("%q contains {id}, and the ID of the peer is missing: set it by --peer-id, such as --peer-id a", path)
}

func (s settings) peers() (peers []api.Peer) {
	for _, p := range s.Peers {
		peers = append(peers, api.Peer(p))
	}
	return peers
}

// validate rejects values that no command accepts. Errors contain the names of keys and flags.
func (s settings) validate() error {
	between := func(key string, d, least, most time.Duration, example string) error {
		if d < least || d > most {
			return newUsageError("%s %v: must be from %v to %v, such as %s", key, d, least, most, example)
		}
		return nil
	}
	if s.Addr != "" {
		if err := checkAddress("addr", s.Addr, false); err != nil {
			return err
		}
	}
	if s.Listen != "" {
		if err := checkAddress("listen", s.Listen, true); err != nil {
			return err
		}
	}
	for i, p := range s.Peers {
		for _, q := range s.Peers[:i] {
			if p.ID == q.ID || p.Addr == q.Addr {
				return newUsageError("peers: %s and %s have the same ID or address; IDs and addresses must be unique, such as %s", peerURL(api.Peer(q)), peerURL(api.Peer(p)), examplePeer)
			}
		}
	}
	heartbeat := cmp.Or(s.Heartbeat, s.ElectionTimeout/5)
	switch {
	case s.MaxRequestIDs < 1:
		return newUsageError("max-request-ids %d: must be positive, such as %d", s.MaxRequestIDs, raftlog.DefaultMaxRequestIDs)
	case s.MaxData < 1 || s.MaxData > maxData:
		return newUsageError("max-data %d: must be from 1 to %d, such as %d", s.MaxData, maxData, raftlog.DefaultMaxData)
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
