// Package docker runs the servers of package internal/testenv/ensemble in Docker containers. A
// program that imports it can use [ensemble.Docker], and [ensemble.Auto] prefers it. It is a
// separate package because it requires many modules.
package docker

import "github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"

func init() { ensemble.RegisterDocker(openServers) }
