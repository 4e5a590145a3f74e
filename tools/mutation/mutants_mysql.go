package main

// mysqlMutants break rules of the store for changefeeds on MySQL and MariaDB.
var mysqlMutants = []mutant{
	{
		name: "changefeed/mysql-version", breaks: "a heartbeat replaces a record that has changed",
		file: "adapters/changefeed/mysql/record.go",
		edits: []edit{
			{" AND version = ?", " AND ? IS NOT NULL"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStore_SatisfiesContract$/^CompareAndSet$",
	},
	{
		name: "changefeed/mysql-commit", breaks: "a heartbeat is acknowledged before it was committed",
		file: "adapters/changefeed/mysql/record.go",
		edits: []edit{
			{"\"COMMIT\"", "\"DO 0\""},
		},
		tests: "./adapters/changefeed/mysql -run ^TestHeartbeat_IsCommittedWithoutAutocommit$",
	},
	{
		name: "changefeed/mysql-lock", breaks: "requests wait at the server for a locked row until their context is done",
		file: "adapters/changefeed/mysql/record.go",
		edits: []edit{
			{"innodb_lock_wait_timeout=1, ", "innodb_lock_wait_timeout=1000, "},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStore_LimitsWaitForLocksOfOtherClients$/^Row$",
	},
	{
		name: "changefeed/mysql-table-lock", breaks: "requests wait at the server for a locked table until their context is done",
		file: "adapters/changefeed/mysql/record.go",
		edits: []edit{
			{" lock_wait_timeout=1 ", " lock_wait_timeout=1000 "},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStore_LimitsWaitForLocksOfOtherClients$/^Table$",
	},
	{
		name: "changefeed/mysql-key", breaks: "the keys of two elections may differ in case only",
		file: "adapters/changefeed/mysql/record.go",
		edits: []edit{
			{"\"election varbinary(255)\"", "\"election varchar(255)\""},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStore_DistinguishesSimilarKeys$",
	},
	{
		name: "changefeed/mysql-read-only", breaks: "Start accepts a server that does not accept writes",
		file: "adapters/changefeed/mysql/start.go",
		edits: []edit{
			{"settings[\"read_only\"] != \"OFF\"", "false"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStart_AcceptsDeploymentsAsDocumented$/^a_replica,_or",
	},
	{
		name: "changefeed/mysql-autocommit", breaks: "Start accepts connections whose reads do not end their transactions",
		file: "adapters/changefeed/mysql/start.go",
		edits: []edit{
			{"settings[\"autocommit\"] != \"ON\"", "false"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStart_AcceptsDeploymentsAsDocumented$/^autocommit_off$",
	},
	{
		name: "changefeed/mysql-isolation", breaks: "Start accepts reads of what is not committed",
		file: "adapters/changefeed/mysql/start.go",
		edits: []edit{
			{"settings[\"tx_isolation\"] == \"READ-UNCOMMITTED\"", "false"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStart_AcceptsDeploymentsAsDocumented$/^READ_UNCOMMITTED$",
	},
	{
		name: "changefeed/mysql-flush", breaks: "Start accepts writes that are not on disk when they are acknowledged",
		file: "adapters/changefeed/mysql/start.go",
		edits: []edit{
			{"is(\"innodb_flush_log_at_trx_commit\", \"1\", \"3\")", "true"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStart_AcceptsDeploymentsAsDocumented$/innodb_flush_log_at_trx_commit_0",
	},
	{
		name: "changefeed/mysql-binlog", breaks: "Start accepts a binary log that lacks acknowledged writes after a crash",
		file: "adapters/changefeed/mysql/start.go",
		edits: []edit{
			{" || is(\"sync_binlog\", \"1\")", " || true"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStart_AcceptsDeploymentsAsDocumented$/sync_binlog_other",
	},
	{
		name: "changefeed/mysql-replicas", breaks: "Start accepts replicas",
		file: "adapters/changefeed/mysql/start.go",
		edits: []edit{
			{"	if is(\"slaves_connected\", \"0\", \"\") {", "	if true {\n		settings[\"binlog_readers\"] = \"0\""},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStart_AcceptsDeploymentsAsDocumented$/^a_server_with",
	},
	{
		name: "changefeed/mysql-binlog-readers", breaks: "Start accepts replicas that only the list of processes shows",
		file: "adapters/changefeed/mysql/start.go",
		edits: []edit{
			{"add(\"binlog_readers\", is(\"binlog_readers\", \"0\")", "add(\"binlog_readers\", true"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestUnsafeSettings_FindsReplicasInListOfProcesses$",
	},
	{
		name: "changefeed/mysql-replica", breaks: "Start accepts a replica that accepts writes",
		file: "adapters/changefeed/mysql/start.go",
		edits: []edit{
			{"is(\"slaves_running\", \"0\", \"\")", "true"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStart_AcceptsDeploymentsAsDocumented$/^a_replica_of_MariaDB",
	},
	{
		name: "changefeed/mysql-galera", breaks: "Start accepts Galera without causal reads",
		file: "adapters/changefeed/mysql/start.go",
		edits: []edit{
			{"wait&1 != 0", "wait >= 0"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStart_AcceptsDeploymentsAsDocumented$/^Galera_without",
	},
	{
		name: "changefeed/mysql-galera-quorum", breaks: "Start accepts Galera without a quorum",
		file: "adapters/changefeed/mysql/start.go",
		edits: []edit{
			{"!alone", "!alone || alone"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStart_AcceptsDeploymentsAsDocumented$/^Galera_with_pc",
	},
	{
		name: "changefeed/mysql-engine", breaks: "Start accepts a table without transactions",
		file: "adapters/changefeed/mysql/start.go",
		edits: []edit{
			{"engine != \"InnoDB\"", "false"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStart_AcceptsDeploymentsAsDocumented$/^a_table_with",
	},
	{
		name: "changefeed/mysql-layout", breaks: "Start accepts a table that changes records",
		file: "adapters/changefeed/mysql/start.go",
		edits: []edit{
			{"len(missing) > 0", "false"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStart_RejectsUnsuitableTableOrConnection$/^IgnoresCase$",
	},
	{
		name: "changefeed/mysql-primary-key", breaks: "Start accepts a table with several records of an election",
		file: "adapters/changefeed/mysql/start.go",
		edits: []edit{
			{"keys != \"election\"", "false"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStart_RejectsUnsuitableTableOrConnection$/^LongKey$",
	},
	{
		name: "changefeed/mysql-privileges", breaks: "Start accepts a user who may not write",
		file: "adapters/changefeed/mysql/start.go",
		edits: []edit{
			{"conn.ExecContext(ctx, t.sql.update, append(t.recordArguments(changefeed.Record{}), []byte{})...)", "conn.ExecContext(ctx, \"DO 0\")"},
		},
		tests: "./adapters/changefeed/mysql -run ^TestStart_RejectsUnsuitableTableOrConnection$/^MayNotUpdate$",
	},
}
