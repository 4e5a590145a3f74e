package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// checkSafety returns an error if the deployment can lose acknowledged writes and the user has not
// accepted the risk. If the client cannot read a setting, checkSafety assumes the server's
// default.
func (s *Store) checkSafety(ctx context.Context, server *redis.Client) error {
	found := s.unsafeClient()
	replicas, err := s.unsafeReplicas(ctx, server)
	if err != nil {
		return err
	}
	files, err := unsafeFiles(ctx, server)
	if err != nil {
		return err
	}
	return s.accepted.Check(fmt.Sprintf("redis at %s", server.Options().Addr), append(append(found, replicas...), files...))
}

// failoverAddr is the address in the options of clients that NewFailoverClient creates.
const failoverAddr = "FailoverClient"

// unsafeClient returns an unsafe setting, the kind of the client, if the client connects to another server after a
// failover, as clients of Sentinel and Cluster do.
func (s *Store) unsafeClient() []changefeed.UnsafeSetting {
	kind := ""
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		kind = "ClusterClient"
	case *redis.Client:
		if c.Options().Addr == failoverAddr {
			kind = "FailoverClient"
		}
	}
	if kind == "" {
		return nil
	}
	return []changefeed.UnsafeSetting{{
		Name: "the client", Value: kind, Risk: changefeed.RiskFailover,
		Remedy: "use a client of one server without replicas",
	}}
}

// unsafeReplicas returns an unsafe setting if the server has replicas, because these receive writes only after the
// server has acknowledged them. The error is not nil if the server is a replica itself.
func (s *Store) unsafeReplicas(ctx context.Context, server *redis.Client) ([]changefeed.UnsafeSetting, error) {
	role, replicas := "", ""
	reply, err := server.Do(ctx, "ROLE").Slice()
	switch {
	case err == nil && len(reply) >= 3:
		role = fmt.Sprint(reply[0])
		if list, ok := reply[2].([]any); ok && len(list) > 0 {
			replicas = fmt.Sprint(len(list))
		}
	case err == nil && len(reply) > 0:
		role = fmt.Sprint(reply[0])
	case err != nil && !isUnavailableCommand(err):
		return nil, err
	default:
		info, err := readInfo(ctx, server, "replication")
		if err != nil {
			return nil, err
		}
		role, replicas = info["role"], strings.TrimPrefix(info["connected_slaves"], "0")
	}
	if role != "" && role != "master" {
		return nil, s.runner.Unsuitable("%s is a %s; use a client of the master", server.Options().Addr, role)
	}
	if replicas == "" {
		return nil, nil
	}
	return []changefeed.UnsafeSetting{{
		Name: "the number of replicas", Value: replicas, Risk: changefeed.RiskFailover,
		Remedy: "use a server without replicas",
	}}, nil
}

// unsafeFiles returns the settings with which the server's files can lack acknowledged writes.
func unsafeFiles(ctx context.Context, server *redis.Client) ([]changefeed.UnsafeSetting, error) {
	appendOnly, err := readSetting(ctx, server, "appendonly")
	if err != nil {
		return nil, err
	}
	if appendOnly == unknown { // More users may call INFO, which contains the setting as well.
		info, err := readInfo(ctx, server, "persistence")
		if err != nil {
			return nil, err
		}
		switch info["aof_enabled"] {
		case "1":
			appendOnly = "yes"
		case "0":
			appendOnly = "no"
		}
	}
	if appendOnly != "yes" {
		save, err := readSetting(ctx, server, "save")
		if err != nil || save == "" { // A server that writes no file is safe, because it never restores an old record.
			return nil, err
		}
		return []changefeed.UnsafeSetting{{
			Name: "save", Value: save, Risk: changefeed.RiskRestart,
			Remedy: fmt.Sprintf("appendonly is %q; set appendonly to yes and appendfsync to always, or let the user read the settings by CONFIG GET", appendOnly),
		}}, nil
	}
	for _, s := range []struct{ name, safe, standard string }{
		{"appendfsync", "always", "everysec"},
		{"no-appendfsync-on-rewrite", "no", "no"},
	} {
		value, err := readSetting(ctx, server, s.name)
		if err != nil {
			return nil, err
		}
		if value == unknown && s.standard == s.safe || value == s.safe {
			continue
		}
		return []changefeed.UnsafeSetting{{
			Name: s.name, Value: value, Risk: changefeed.RiskPowerLoss,
			Remedy: fmt.Sprintf("set it to %s, or let the user read it by CONFIG GET", s.safe),
		}}, nil
	}
	return nil, nil
}

// unknown is the value of a setting that the client cannot read.
const unknown = "unknown"

// readSetting returns a value of the server's configuration, or unknown.
func readSetting(ctx context.Context, server *redis.Client, name string) (string, error) {
	all, err := server.ConfigGet(ctx, name).Result()
	if err != nil && !isUnavailableCommand(err) {
		return "", err
	}
	if value, ok := all[name]; ok {
		return value, nil
	}
	return unknown, nil
}

// readInfo returns the fields of a section of INFO. They are empty if the user may not call it.
func readInfo(ctx context.Context, server *redis.Client, section string) (map[string]string, error) {
	text, err := server.Info(ctx, section).Result()
	if err != nil && !isUnavailableCommand(err) {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields, nil
}

// isUnavailableCommand reports whether the server always rejects a command: the user may not call
// it, or a managed service does not support it. Other error codes, such as LOADING, are transient.
func isUnavailableCommand(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && (strings.HasPrefix(reply.Error(), "NOPERM") || strings.HasPrefix(reply.Error(), "ERR"))
}
