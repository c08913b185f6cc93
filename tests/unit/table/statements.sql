-- Statements of the kinds that Flink's documentation and public programs have. Blank lines stand between them.

CREATE TABLE user_behavior (
  user_id BIGINT,
  item_id BIGINT,
  category_id BIGINT,
  behavior STRING,
  ts TIMESTAMP(3),
  proctime AS PROCTIME(),  -- processing time
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'user_behavior',
  'properties.bootstrap.servers' = 'kafka:9094',
  'properties.group.id' = 'g',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
)

CREATE TABLE KafkaTable (
  `event_time` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
  `partition` BIGINT METADATA VIRTUAL,
  `offset` BIGINT METADATA VIRTUAL,
  `headers` MAP<STRING, BYTES> METADATA,
  `user_id` BIGINT
) WITH ('connector' = 'kafka', 'topic' = 'a;b', 'value.format' = 'csv')

CREATE TABLE pageviews_per_region (
  user_region STRING,
  pv BIGINT,
  uv BIGINT,
  PRIMARY KEY (user_region) NOT ENFORCED
) WITH ('connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json')

CREATE TABLE Orders (
    `user` BIGINT,
    product STRING,
    order_time TIMESTAMP(3),
    price DECIMAL(32, 2),
    quantity INT,
    cost AS price * quantity,
    order_day AS CAST(order_time AS DATE),
    ltz AS TO_TIMESTAMP_LTZ(`user`, 3),
    parsed AS TO_TIMESTAMP(product, 'yyyy-MM-dd HH:mm:ss'),
    hour_of AS HOUR(order_time),
    WATERMARK FOR ltz AS ltz - INTERVAL '0.001' SECOND
) COMMENT 'orders' WITH ('connector' = 'filesystem', 'path' = 'file:///tmp/x', 'format' = 'parquet')

CREATE TABLE Orders_with_watermark (WATERMARK FOR order_time AS order_time - INTERVAL '5' SECOND) WITH ('scan.startup.mode' = 'latest-offset') LIKE Orders

CREATE TABLE Orders_in_kafka (WATERMARK FOR order_time AS order_time - INTERVAL '5' SECOND) WITH ('connector' = 'kafka')
LIKE Orders_in_file (EXCLUDING ALL INCLUDING GENERATED)

CREATE TABLE nested (id STRING, payload ROW<device ROW<id STRING, location ROW<lat DOUBLE, lon DOUBLE>>, readings ARRAY<ROW<k STRING, v DOUBLE>>>, attributes MAP<STRING, ARRAY<INT>>) WITH ('connector' = 'kafka')

CREATE TEMPORARY VIEW daily AS SELECT order_day, SUM(cost) AS total FROM Orders GROUP BY order_day

CREATE TEMPORARY FUNCTION parse_url AS 'my_module.parse_url' LANGUAGE PYTHON

CREATE TEMPORARY SYSTEM FUNCTION IF NOT EXISTS hash_code AS 'udfs.hash_code' LANGUAGE PYTHON

INSERT INTO sink SELECT user_id, COUNT(*) FROM user_behavior WHERE behavior = 'buy' GROUP BY user_id

INSERT INTO buy_cnt_per_hour SELECT HOUR(TUMBLE_START(ts, INTERVAL '1' HOUR)), COUNT(*) FROM user_behavior WHERE behavior = 'buy' GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)

INSERT INTO cumulative_uv
SELECT date_str, MAX(time_str), COUNT(DISTINCT user_id) as uv
FROM (
  SELECT
    DATE_FORMAT(ts, 'yyyy-MM-dd') as date_str,
    SUBSTR(DATE_FORMAT(ts, 'HH:mm'),1,4) || '0' as time_str,
    user_id
  FROM user_behavior)
GROUP BY date_str

INSERT INTO MyUserTable (id, name, age) SELECT id, name, CAST(NULL AS INT) FROM T

INSERT INTO students VALUES ('fred flintstone', 35, 1.28), ('barney rubble', 32, 2.32)

SELECT order_id, price + tax FROM Orders WHERE price > 10 AND (tax IS NULL OR tax <> 0.5)

SELECT price + tax FROM (VALUES (1, 2.0), (2, 3.1)) AS t (price, tax)

WITH orders_with_total AS (SELECT order_id, price + tax AS total FROM Orders) SELECT order_id, SUM(total) FROM orders_with_total GROUP BY order_id

SELECT window_start, window_end, supplier_id, SUM(price) AS total_price
  FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)
  GROUP BY window_start, window_end, supplier_id

SELECT window_start, window_end, SUM(price) AS total_price FROM TABLE(HOP(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)) GROUP BY window_start, window_end

SELECT window_start, window_end, SUM(price)
FROM TABLE(CUMULATE(DATA => TABLE Bid, TIMECOL => DESCRIPTOR(bidtime), STEP => INTERVAL '2' MINUTES, SIZE => INTERVAL '10' MINUTES))
GROUP BY window_start, window_end

SELECT window_start, window_end, item, SUM(price) FROM TABLE(SESSION(TABLE Bid PARTITION BY item, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES)) GROUP BY item, window_start, window_end

SELECT COUNT(DISTINCT user_id) FILTER (WHERE flag IN ('android', 'iphone')) AS app_uv FROM T

CREATE VIEW window1 AS
SELECT window_start AS window_5mintumble_start, window_end AS window_5mintumble_end, window_time AS rowtime, SUM(price) AS partial_price
  FROM TABLE(TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES))
  GROUP BY supplier_id, window_start, window_end, window_time

SELECT `user`, TUMBLE_START(order_time, INTERVAL '1' DAY) AS wStart, TUMBLE_END(order_time, INTERVAL '1' DAY) AS wEnd, TUMBLE_ROWTIME(order_time, INTERVAL '1' DAY), SUM(amount) FROM Orders GROUP BY TUMBLE(order_time, INTERVAL '1' DAY), `user`

SELECT HOP_START(rowtime, INTERVAL '30' SECOND, INTERVAL '1' MINUTE), AVG(temp) FROM sensors GROUP BY HOP(rowtime, INTERVAL '30' SECOND, INTERVAL '1' MINUTE), id

SELECT SESSION_START(proctime, INTERVAL '12' HOUR) AS sStart, SUM(a) FROM Orders GROUP BY SESSION(proctime, INTERVAL '12' HOUR), b

SELECT id, CASE WHEN score >= 90 THEN 'A' WHEN score BETWEEN 80 AND 89 THEN 'B' ELSE 'C' END AS grade FROM results

SELECT IF(a > b, a, b), COALESCE(c, 'unknown'), NULLIF(d, ''), GREATEST(a, b) FROM T

SELECT DATE_FORMAT(FROM_UNIXTIME(ts / 1000), 'yyyy-MM-dd HH:mm:ss'), UNIX_TIMESTAMP(), TO_DATE('2026-01-31'), CURRENT_DATE, NOW() FROM T

SELECT EXTRACT(HOUR FROM ts), FLOOR(ts TO DAY), CEIL(ts TO MONTH), TIMESTAMPDIFF(SECOND, ts, CURRENT_TIMESTAMP), TIMESTAMPADD(DAY, 1, ts) FROM T

SELECT REGEXP_EXTRACT(url, '(?:https?://)?([^/]+)', 1), REGEXP_REPLACE(b, '[0-9]+', '#'), SPLIT_INDEX(url, '/', 3), CHAR_LENGTH(url), REVERSE(b), LPAD(b, 10, '0') FROM T

SELECT UPPER(TRIM(BOTH ' ' FROM name)) || '-' || CAST(id AS STRING), POSITION('@' IN email), OVERLAY(name PLACING 'x' FROM 2 FOR 1), SUBSTRING(name FROM 2) FROM T

SELECT payload.device.id, t.payload.device.location.lat, payload.readings[1].v, attributes['k'][1], CARDINALITY(payload.readings) FROM nested AS t

SELECT JSON_VALUE(msg, '$.a.b'), JSON_VALUE(msg, '$.n' RETURNING INTEGER), JSON_QUERY(msg, '$.list'), JSON_EXISTS(msg, '$.x') FROM T

SELECT ARRAY[1, 2, 3], MAP['a', 1, 'b', 2], ROW(1, 'x'), (1, 2) FROM T

SELECT word, COUNT(*) AS `count` FROM (SELECT LOWER(word) AS word FROM lines WHERE CHAR_LENGTH(word) > 0) AS w GROUP BY word HAVING COUNT(*) > 1

SELECT DISTINCT id FROM Orders

SELECT a, b FROM A1 UNION ALL SELECT a, b FROM B1 UNION ALL (SELECT c, d FROM C1)

SELECT MIN(x), MAX(x), AVG(x), STDDEV_POP(x), STDDEV_SAMP(x), VAR_POP(x), VARIANCE(x), FIRST_VALUE(x), LAST_VALUE(x), LISTAGG(s, '|'), COLLECT(s) FROM T GROUP BY k

SELECT TRY_CAST('12' AS INT), CAST(x AS DECIMAL(20, 4)), CAST(ts AS TIMESTAMP(3)), CAST(y AS ROW<a INT, b STRING>), CAST(z AS ARRAY<DOUBLE>) FROM T

SELECT a IS TRUE, a IS NOT FALSE, b LIKE '%x_%' ESCAPE '!', c NOT IN (1, 2), d IS DISTINCT FROM e, NOT f, -g, +h, i % 2, (j - 1) * 2 / 3.0 FROM T

SELECT MD5(a), SHA256(b), UUID(), RAND(), ROUND(c, 2), TRUNCATE(d, 1), POWER(2, 3), LOG10(e), MOD(f, 3), ABS(g), SIGN(h), PI(), E() FROM T

SELECT my_udf(a, 'x'), default_catalog.default_database.my_udf(b) FROM default_catalog.default_database.T

SELECT id FROM Orders LIMIT 3

EXPLAIN ESTIMATED_COST, CHANGELOG_MODE SELECT id FROM Orders

EXPLAIN PLAN FOR SELECT id FROM Orders UNION ALL SELECT id FROM Orders

DESCRIBE Orders

SET 'table.exec.mini-batch.enabled' = 'true'

SET 'pipeline.name' = 'SqlJob'

RESET 'table.planner'

EXECUTE STATEMENT SET
BEGIN
-- one DAG
INSERT INTO pageviews SELECT page_id, count(1) FROM pageviews GROUP BY page_id;
INSERT INTO uniqueviews SELECT page_id, count(distinct user_id) FROM pageviews GROUP BY page_id;
END

DROP TABLE IF EXISTS Orders

DROP TEMPORARY SYSTEM FUNCTION IF EXISTS f
