package main

// The configuration file: YAML, with the names of the flags of run as keys.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

const (
	flagConfig = "config"
	// keyCommand has what follows -- on a command line.
	keyCommand = "command"
)

// fromFile sets the flags that neither the command line nor the environment has. A file is
// made for run; other commands check all of it, and take from it what all commands have.
func (s *settings) fromFile(cmd *cobra.Command) error {
	if s.config == "" {
		return nil
	}
	text, err := os.ReadFile(s.config)
	if err != nil {
		return usage("--config: %w", err)
	}
	keys, err := parseConfig(text)
	if err != nil {
		return usage("--config %s: %w", s.config, err)
	}
	common, all := cmd.Root().PersistentFlags(), cmd.Flags()
	ofRun := pflag.NewFlagSet("", pflag.ContinueOnError)
	ofRun.SetNormalizeFunc(aliases)
	ofRun.AddFlagSet(common)
	for _, c := range cmd.Root().Commands() {
		if c.Name() == "run" {
			ofRun.AddFlagSet(c.Flags())
		}
	}
	seen := map[string]int{}
	for _, key := range keys {
		at := func(format string, args ...any) error {
			return usage("%s:%d: %w", s.config, key.line, fmt.Errorf(format, args...))
		}
		name := string(aliases(nil, key.name))
		if line, twice := seen[name]; twice {
			return at("%q is set in line %d already", key.name, line)
		}
		seen[name] = key.line
		flag := ofRun.Lookup(name)
		switch {
		case name == keyCommand:
			if !key.list || len(key.values) == 0 {
				return at("%q is not a list: the program and its arguments, one item each", key.name)
			}
			s.fileProgram = key.values
			continue
		case flag == nil || name == flagConfig || name == "help":
			return at("unknown key %q: the nearest is %q", key.name, nearest(name, ofRun))
		case key.list:
			return at("%q is a list, and should be one value", key.name)
		case key.null:
			return at("%q has no value", key.name)
		}
		takes := cmd.Name() == "run" || cmd.Name() == "config" || common.Lookup(name) != nil
		switch {
		case !takes:
			// A flag of another command, which may have one of the same name.
			if err := flag.Value.Set(key.values[0]); err != nil {
				return at("%q: %q: %w", key.name, key.values[0], err)
			}
		case !all.Changed(name):
			if err := all.Set(name, key.values[0]); err != nil {
				return at("%q: %w", key.name, cmdline.ValueError(err))
			}
			_ = all.SetAnnotation(name, origin, []string{fmt.Sprintf("%s:%d", s.config, key.line)})
		}
	}
	return nil
}

// nearest is the known key that is most like one that is not.
func nearest(unknown string, flags *pflag.FlagSet) string {
	known := []string{keyCommand}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != flagConfig && f.Name != "help" {
			known = append(known, f.Name)
		}
	})
	key, _ := cmdline.Nearest(unknown, known)
	return key
}

// configKey is a key of the file with its value, or with its values if that is a list.
type configKey struct {
	name       string
	line       int
	values     []string
	list, null bool
}

// parseConfig reads one document, a mapping of names to values or lists of values. Values
// are as they are written: it is the flags that know their types.
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
		return nil, nil // nothing but comments
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
