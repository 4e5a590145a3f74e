package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/transport"
)

const (
	flagConfig = "config"
	// keyCommand is the key of the program and its arguments.
	keyCommand = "command"
)

// readConfigFile sets the flags that neither the command line nor the environment contains. The keys of the
// file are the flags of run. Other commands check all keys, and use those that all commands have.
func (s *settings) readConfigFile(cmd *cobra.Command) error {
	if s.configFile == "" {
		return nil
	}
	text, warning, err := cmdline.ReadConfig(s.configFile)
	if err != nil {
		return usage("--config: %w", err)
	}
	keys, err := parseConfig(text)
	if err != nil {
		return usage("--config %s: %w", s.configFile, err)
	}
	common, all := cmd.Root().PersistentFlags(), cmd.Flags()
	runFlags := pflag.NewFlagSet("", pflag.ContinueOnError)
	runFlags.SetNormalizeFunc(normalizeFlag)
	runFlags.AddFlagSet(common)
	for _, c := range cmd.Root().Commands() {
		if c.Name() == "run" {
			runFlags.AddFlagSet(c.Flags())
		}
	}
	seen := map[string]int{}
	for _, key := range keys {
		fail := func(format string, args ...any) error {
			return usage("%s:%d: %w", s.configFile, key.line, fmt.Errorf(format, args...))
		}
		name := string(normalizeFlag(nil, key.name))
		if line, twice := seen[name]; twice {
			return fail("%q is set in line %d already", key.name, line)
		}
		seen[name] = key.line
		flag := runFlags.Lookup(name)
		if key.isCredential(name) {
			s.configWarning = warning
		}
		switch {
		case name == keyCommand:
			if !key.list || len(key.values) == 0 {
				return fail("%q is not a list: the program and its arguments, one item each", key.name)
			}
			s.fileProgram = key.values
			continue
		case flag == nil || name == flagConfig || name == "help":
			return fail("unknown key %q: the nearest is %q", key.name, nearestKey(name, runFlags))
		case key.list:
			return fail("%q is a list, and should be one value", key.name)
		case key.null:
			return fail("%q has no value", key.name)
		}
		used := cmd.Name() == "run" || cmd.Name() == "config" || common.Lookup(name) != nil
		switch {
		case !used: // cmd can have a different flag with the same name
			if err := flag.Value.Set(key.values[0]); err != nil {
				return fail("%q: %q: %w", key.name, key.values[0], err)
			}
		case !all.Changed(name):
			if err := all.Set(name, key.values[0]); err != nil {
				return fail("%q: %w", key.name, cmdline.ValueError(err))
			}
			_ = all.SetAnnotation(name, sourceAnnotation, []string{fmt.Sprintf("%s:%d", s.configFile, key.line)})
		}
	}
	return nil
}

// nearestKey returns the known key that is most similar to an unknown one.
func nearestKey(unknown string, flags *pflag.FlagSet) string {
	known := []string{keyCommand}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != flagConfig && f.Name != "help" {
			known = append(known, f.Name)
		}
	})
	key, _ := cmdline.Nearest(unknown, known)
	return key
}

// configKey is a key of the file and its value.
type configKey struct {
	name   string
	line   int
	values []string // the value, or the elements of the list
	list   bool     // the value is a list
	null   bool     // there is no value
}

// parseConfig parses a document that maps names to values or lists of values. It returns values as text,
// because their types depend on the flags.
func parseConfig(text []byte) ([]configKey, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, errors.New(strings.ReplaceAll(err.Error(), "yaml: ", ""))
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("expected exactly one YAML document")
	}
	top := document.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return nil, nil // the file contains only comments
	}
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: not of the form key: value", top.Line)
	}
	var keys []configKey
	for i := 0; i < len(top.Content); i += 2 {
		k, err := newConfigKey(top.Content[i], top.Content[i+1])
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// isCredential reports whether the value of the flag name contains a credential, or may contain one.
func (k configKey) isCredential(name string) bool {
	if name == "store" && len(k.values) == 1 {
		return transport.Redact(k.values[0]) != k.values[0]
	}
	return slices.Contains(credentials, flagVariables(name)[0])
}

func newConfigKey(name, value *yaml.Node) (configKey, error) {
	k := configKey{name: name.Value, line: name.Line, list: value.Kind == yaml.SequenceNode}
	items := []*yaml.Node{value}
	if k.list {
		items = value.Content
	}
	for _, item := range items {
		if item.Kind == yaml.AliasNode {
			item = item.Alias
		}
		if item.Kind != yaml.ScalarNode {
			return k, fmt.Errorf("line %d: %q is neither a value nor a list of values", item.Line, k.name)
		}
		k.null = item.Tag == "!!null" && !k.list
		k.values = append(k.values, item.Value)
	}
	return k, nil
}
